import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** One produce at a time with acks=all: address, topic, how many, bytes each. Prints p50 and p99 in milliseconds. */
public class KafkaSingles {
  public static void main(String[] words) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", words[0]);
    settings.put("acks", "all");
    settings.put("linger.ms", "0");
    settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    int count = Integer.parseInt(words[2]);
    int warm = 2 * count; // the compiler of the virtual machine needs more of it than an interpreter
    byte[] value = new byte[Integer.parseInt(words[3])];
    long[] took = new long[count];
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
      for (int number = -warm; number < count; number++) {
        long began = System.nanoTime();
        producer.send(new ProducerRecord<>(words[1], value)).get();
        if (number >= 0) {
          took[number] = System.nanoTime() - began;
        }
      }
    }
    Arrays.sort(took);
    System.out.println(took[count / 2] / 1e6 + " " + took[(int) (count * 0.99)] / 1e6);
  }
}
