// A client of a broker that knows nothing but the contract: plain generated stubs, and Kafka's record batch.
//
// It makes a topic, produces to it by the unary call and by the stream, reads it back by both fetches, shares it as a
// member of a group, commits, and finds an error by its name. What it saw goes to standard output, a line each.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "logstore.test/client/pb"
)

func check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

// batch is a record batch of format v2 with the values, uncompressed, without keys, headers or a producer.
func batch(values ...string) []byte {
	var records []byte
	for number, value := range values {
		record := []byte{0}                                 // attributes
		record = binary.AppendVarint(record, 0)             // timestamp delta
		record = binary.AppendVarint(record, int64(number)) // offset delta
		record = binary.AppendVarint(record, -1)            // no key
		record = binary.AppendVarint(record, int64(len(value)))
		record = append(record, value...)
		record = binary.AppendVarint(record, 0) // headers
		records = binary.AppendVarint(records, int64(len(record)))
		records = append(records, record...)
	}
	now := uint64(time.Now().UnixMilli())
	body := binary.BigEndian.AppendUint16(nil, 0) // attributes
	body = binary.BigEndian.AppendUint32(body, uint32(len(values)-1))
	body = binary.BigEndian.AppendUint64(body, now)
	body = binary.BigEndian.AppendUint64(body, now)
	body = binary.BigEndian.AppendUint64(body, ^uint64(0)) // producer id -1
	body = binary.BigEndian.AppendUint16(body, 0xffff)
	body = binary.BigEndian.AppendUint32(body, 0xffffffff)
	body = binary.BigEndian.AppendUint32(body, uint32(len(values)))
	body = append(body, records...)
	head := binary.BigEndian.AppendUint64(nil, 0) // base offset
	head = binary.BigEndian.AppendUint32(head, uint32(len(body)+9))
	head = binary.BigEndian.AppendUint32(head, 0) // leader epoch
	head = append(head, 2)                        // magic
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(head, body...)
}

// values are those of all records in the batches, with their offsets.
func values(data []byte) []string {
	var found []string
	for len(data) > 0 {
		base := int64(binary.BigEndian.Uint64(data))
		end := 12 + int(binary.BigEndian.Uint32(data[8:]))
		if crc32.Checksum(data[21:end], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(data[17:]) {
			check(fmt.Errorf("a batch's checksum is wrong"), "read")
		}
		records := data[61:end]
		for len(records) > 0 {
			size, used := binary.Varint(records)
			record := records[used : used+int(size)]
			records = records[used+int(size):]
			record = record[1:]
			next := func() int64 {
				number, used := binary.Varint(record)
				record = record[used:]
				return number
			}
			next()
			offset := base + next()
			next()
			length := next()
			found = append(found, fmt.Sprintf("%d=%s", offset, record[:length]))
		}
		data = data[end:]
	}
	return found
}

func produce(topic string, partition int32, data []byte, number int64) *pb.ProduceRequest {
	return &pb.ProduceRequest{
		Acks:          pb.Acks_ACKS_ALL,
		Batches:       []*pb.ProduceBatch{{Topic: topic, Partition: partition, Size: int32(len(data))}},
		CorrelationId: number,
		Records:       data,
	}
}

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err, "connect")
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	cluster, err := pb.NewClusterServiceClient(connection).GetCluster(ctx, &pb.GetClusterRequest{})
	check(err, "cluster")
	fmt.Println("features", len(cluster.Features) > 0)
	topics := pb.NewTopicServiceClient(connection)
	made, err := topics.CreateTopic(ctx, &pb.CreateTopicRequest{Name: "go", Partitions: 2, Config: map[string]string{"retention.ms": "-1"}})
	check(err, "create")
	fmt.Println("topic", made.Topic.Name, made.Topic.Partitions)

	producing := pb.NewProduceServiceClient(connection)
	answer, err := producing.Produce(ctx, produce("go", 0, batch("a", "b"), 7))
	check(err, "produce")
	fmt.Println("produced", answer.Results[0].BaseOffset, answer.CorrelationId)
	stream, err := producing.ProduceStream(ctx)
	check(err, "produce stream")
	for number := int64(0); number < 3; number++ {
		check(stream.Send(produce("go", 0, batch(fmt.Sprintf("s%d", number)), number)), "send")
	}
	check(stream.CloseSend(), "close")
	for number := int64(0); number < 3; number++ {
		answer, err := stream.Recv()
		check(err, "stream answer")
		fmt.Println("streamed", answer.Results[0].BaseOffset, answer.CorrelationId)
	}
	refused, err := producing.Produce(ctx, produce("none", 0, batch("x"), 0))
	check(err, "produce to no topic")
	fmt.Println("refused", refused.Results[0].Error.Name, refused.Results[0].Error.Retriable)

	fetching := pb.NewFetchServiceClient(connection)
	request := &pb.FetchRequest{
		MinBytes: 1, MaxBytes: 1 << 20, MaxWaitMs: 5000,
		Partitions: []*pb.FetchPartition{{Topic: "go", Partition: 0, Offset: 1, LeaderEpoch: -1, MaxBytes: 1 << 20}},
	}
	fetched, err := fetching.Fetch(ctx, request)
	check(err, "fetch")
	fmt.Println("fetched", values(fetched.Records), fetched.Partitions[0].NextOffset, fetched.Partitions[0].HighWatermark)
	reading, err := fetching.FetchStream(ctx)
	check(err, "fetch stream")
	check(reading.Send(&pb.FetchStreamRequest{Kind: &pb.FetchStreamRequest_CreditBytes{CreditBytes: 1 << 20}}), "credit")
	check(reading.Send(&pb.FetchStreamRequest{Kind: &pb.FetchStreamRequest_Start{Start: request}}), "start")
	first, err := reading.Recv()
	check(err, "first answer")
	_, err = producing.Produce(ctx, produce("go", 0, batch("late"), 0))
	check(err, "produce late")
	second, err := reading.Recv()
	check(err, "second answer")
	fmt.Println("stream", values(first.Records), values(second.Records))

	groups := pb.NewGroupServiceClient(connection)
	member, err := groups.JoinGroup(ctx, &pb.JoinGroupRequest{
		Group: "gophers", Topics: []string{"go"}, SessionTimeoutMs: 10_000, HeartbeatIntervalMs: 1_000, MaxPollIntervalMs: 60_000,
	})
	check(err, "join")
	fmt.Println("assigned", len(member.Assigned))
	offsets := pb.NewOffsetServiceClient(connection)
	_, err = offsets.CommitOffsets(ctx, &pb.CommitOffsetsRequest{
		Group:   "gophers",
		Member:  &pb.Member{MemberId: member.MemberId, Epoch: member.Epoch},
		Offsets: []*pb.CommittedOffset{{Topic: "go", Partition: 0, Offset: 3, LeaderEpoch: -1}},
	})
	check(err, "commit")
	_, err = groups.LeaveGroup(ctx, &pb.LeaveGroupRequest{Group: "gophers", MemberId: member.MemberId})
	check(err, "leave")

	var trailer metadata.MD
	_, err = topics.DeleteTopic(ctx, &pb.DeleteTopicRequest{Name: "none"}, grpc.Trailer(&trailer))
	if err == nil || len(trailer.Get("logstore-error-bin")) != 1 {
		check(fmt.Errorf("%v, %v", err, trailer), "an error in the trailing metadata")
	}
	var told pb.Error
	check(proto.Unmarshal([]byte(trailer.Get("logstore-error-bin")[0]), &told), "read the error")
	fmt.Println("error", told.Name)
}
