import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/** Fills the broker behind the golden directories, and writes down what Java consumers read from it. */
public class Golden {
    static final long START_MS = 1_700_000_000_000L;
    static String server;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        server = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", server));
        switch (args[1]) {
            case "first" -> first();
            case "second" -> second(Path.of(args[2]));
            case "third" -> third();
            case "expect" -> expect(args[2]);
            default -> throw new IllegalArgumentException(args[1]);
        }
        Runtime.getRuntime().halt(0); // open transactions stay open: nobody says goodbye
    }

    // --- producers ---

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", server, "acks", "all", "linger.ms", 20, "batch.size", 16384));
        settings.putAll(more);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long ms, String key, String value) {
        return new ProducerRecord<>(topic, partition, ms, bytes(key), bytes(value));
    }

    /** Batches of a few records: with headers, null and empty keys and values, times out of order. */
    static void fill(KafkaProducer<byte[], byte[]> producer, String topic, int partition, int batches, int from) {
        for (int batch = from; batch < from + batches; batch++) {
            for (int n = 0; n < 4; n++) {
                long ms = START_MS + batch * 1000L + (n == 2 ? -500 : n);
                String key = n == 3 ? null : n == 2 ? "" : "key-" + (batch % 7);
                String value = batch % 5 == 4 && n == 1 ? null : n == 2 ? "" : "value " + batch + " " + n + " departs".repeat(4);
                var record = record(topic, partition, ms, key, value);
                if (n == 0) record.headers().add("leg", bytes("leg-" + batch)).add("none", null).add("", new byte[0]);
                producer.send(record);
            }
            producer.flush();
        }
    }

    static void topic(String name, int partitions, Map<String, String> more) throws Exception {
        // An entry for nearly each batch, and room for few entries: a segment every few batches.
        Map<String, String> config = new HashMap<>(Map.of("index.interval.bytes", "64", "segment.index.bytes", "96",
            "file.delete.delay.ms", "3600000", "retention.ms", "-1"));
        config.putAll(more);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(config))).all().get();
    }

    static void first() throws Exception {
        topic("codecs", 5, Map.of());
        topic("plain", 1, Map.of());
        topic("stamped", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        topic("txn", 2, Map.of());
        topic("squeezed", 2, Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.001",
            "delete.retention.ms", "31536000000000"));
        topic("trimmed", 1, Map.of());
        topic("epochs", 1, Map.of());
        topic("empty", 2, Map.of());
        topic("removed", 1, Map.of());
        String[] codecs = {"none", "gzip", "snappy", "lz4", "zstd"};
        for (int n = 0; n < codecs.length; n++)
            try (var producer = producer(Map.of("compression.type", codecs[n]))) {
                fill(producer, "codecs", n, 15, 0);
            }
        try (var producer = producer(Map.of("enable.idempotence", false))) {
            fill(producer, "plain", 0, 12, 0);
            fill(producer, "stamped", 0, 12, 0);
            fill(producer, "trimmed", 0, 20, 0);
            fill(producer, "epochs", 0, 4, 0);
            fill(producer, "removed", 0, 4, 0);
        }
        admin.deleteTopics(List.of("removed")).all().get();
        admin.deleteRecords(Map.of(new TopicPartition("trimmed", 0), RecordsToDelete.beforeOffset(43))).all().get();
        group();
        transactions();
    }

    static void group() {
        Map<String, Object> settings = Map.of("bootstrap.servers", server, "group.id", "readers");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            var place = new TopicPartition("plain", 0);
            consumer.assign(List.of(place));
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(17, "half way")));
        }
    }

    /** Committed and aborted transactions of two producers, across one another and plain batches. */
    static void transactions() throws Exception {
        var one = producer(Map.of("transactional.id", "one", "compression.type", "lz4"));
        var two = producer(Map.of("transactional.id", "two"));
        var plain = producer(Map.of());
        one.initTransactions();
        two.initTransactions();
        for (int round = 0; round < 6; round++) {
            one.beginTransaction();
            two.beginTransaction();
            for (int partition = 0; partition < 2; partition++) {
                fill(one, "txn", partition, 2, 10 * round);
                fill(plain, "txn", partition, 1, 100 + round);
                fill(two, "txn", partition, 1, 200 + round);
                fill(one, "txn", partition, 1, 10 * round + 2);
            }
            if (round % 3 == 1) one.abortTransaction(); else one.commitTransaction();
            fill(plain, "txn", 0, 1, 300 + round);
            if (round % 2 == 0) two.abortTransaction(); else two.commitTransaction();
        }
        one.close();
        two.close();
        plain.close();
    }

    /** What the cleaner is given, and the wait until it has been through it. */
    static void second(Path directory) throws Exception {
        try (var plain = producer(Map.of()); var one = producer(Map.of("transactional.id", "squeezer"))) {
            fill(plain, "epochs", 0, 3, 4);
            one.initTransactions();
            for (int partition = 0; partition < 2; partition++) {
                for (int round = 0; round < 8; round++) {
                    for (int n = 0; n < 6; n++)
                        plain.send(record("squeezed", partition, START_MS + round, "key-" + (n % (round + 2)), "round " + round));
                    plain.send(record("squeezed", partition, START_MS + round, "gone-" + round % 3, round < 4 ? "soon gone" : null));
                    plain.flush();
                    one.beginTransaction();
                    one.send(record("squeezed", partition, START_MS + round, "tx-" + round % 2, "round " + round));
                    one.flush();
                    if (round % 2 == 0) one.commitTransaction(); else one.abortTransaction();
                }
                for (int n = 0; n < 6; n++) {
                    plain.send(record("squeezed", partition, START_MS + 100 + n, "late-" + n, "stays"));
                    plain.flush();
                }
            }
        }
        Path checkpoint = directory.resolve("cleaner-offset-checkpoint");
        long deadline = System.currentTimeMillis() + 120_000;
        while (!Files.exists(checkpoint) || Files.readAllLines(checkpoint).stream().filter(line -> line.startsWith("squeezed ")).count() < 2) {
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("the cleaner did nothing");
            Thread.sleep(200);
        }
        open("open-1", 400);
    }

    /** A transaction that nobody ends. */
    static void open(String id, int from) {
        var producer = producer(Map.of("transactional.id", id, "transaction.timeout.ms", 900_000));
        producer.initTransactions();
        producer.beginTransaction();
        fill(producer, "txn", 0, 1, from);
        try (var plain = producer(Map.of())) {
            fill(plain, "txn", 0, 2, from + 10);
        }
        fill(producer, "txn", 0, 1, from + 1);
    }

    static void third() throws Exception {
        try (var plain = producer(Map.of("compression.type", "zstd"))) {
            fill(plain, "epochs", 0, 6, 7);
            fill(plain, "codecs", 4, 3, 15);
            fill(plain, "trimmed", 0, 2, 20);
            for (int n = 0; n < 3; n++) plain.send(record("squeezed", 0, START_MS + 200, "key-0", "again " + n));
        }
        open("open-2", 500);
    }

    // --- what Java consumers read ---

    static void expect(String file) throws Exception {
        var names = new TreeSet<>(admin.listTopics().names().get());
        var lines = new ArrayList<String>();
        for (String name : names) {
            int partitions = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size();
            for (int n = 0; n < partitions; n++) lines.add(partition(new TopicPartition(name, n)));
        }
        try (var out = new PrintWriter(file, StandardCharsets.UTF_8)) {
            out.println("{\n" + String.join(",\n", lines) + "\n}");
        }
    }

    static String partition(TopicPartition place) {
        var all = read(place, "read_uncommitted");
        var committed = read(place, "read_committed");
        String offsets = committed.records.stream().map(record -> "" + record.offset()).collect(Collectors.joining(","));
        String rows = all.records.stream().map(Golden::row).collect(Collectors.joining(",\n  "));
        return String.format("\"%s\": {\"start\": %d, \"end\": %d, \"stable\": %d,\n \"committed\": [%s],\n \"records\": [\n  %s]}",
            place, all.start, all.end, committed.end, offsets, rows);
    }

    record Read(long start, long end, List<ConsumerRecord<byte[], byte[]>> records) {}

    static Read read(TopicPartition place, String isolation) {
        Map<String, Object> settings = Map.of("bootstrap.servers", server, "isolation.level", isolation);
        var records = new ArrayList<ConsumerRecord<byte[], byte[]>>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long start = consumer.beginningOffsets(List.of(place)).get(place);
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            return new Read(start, end, records);
        }
    }

    static String row(ConsumerRecord<byte[], byte[]> record) {
        var headers = new ArrayList<String>();
        for (Header header : record.headers()) headers.add("[\"" + header.key() + "\", " + base64(header.value()) + "]");
        return String.format("[%d, %d, %s, %s, [%s]]", record.offset(), record.timestamp(), base64(record.key()),
            base64(record.value()), String.join(", ", headers));
    }

    static String base64(byte[] value) {
        return value == null ? "null" : "\"" + Base64.getEncoder().encodeToString(value) + "\"";
    }
}
