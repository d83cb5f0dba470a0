"""What a broker does for its clients, whatever protocol they speak: gRPC here, others later."""
