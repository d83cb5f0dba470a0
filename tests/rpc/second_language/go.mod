module logstore.test/client

go 1.23

require (
	google.golang.org/grpc v1.83.1
	google.golang.org/protobuf v1.36.11
)
