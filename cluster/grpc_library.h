// The life of the gRPC library in this process: from the first control client or server to the end of the
// process.
#ifndef FURROW_CLUSTER_GRPC_LIBRARY_H_
#define FURROW_CLUSTER_GRPC_LIBRARY_H_

namespace furrow::cluster {

// Any thread, as often as one likes; before anything of gRPC that may be destroyed again. gRPC counts its
// users and takes itself apart when the last one goes, while its own threads still let go of what that one
// used; and a member that joins has such a moment: the client that says hello goes before the member's own
// client and server come. So one user is added that never goes. It costs two sleeping threads until the
// process ends.
void KeepGrpcInitialised();

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_GRPC_LIBRARY_H_
