import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.flink.api.common.accumulators.ListAccumulator;
import org.apache.flink.api.common.externalresource.ExternalResourceInfo;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * Asks every TaskManager for its external resources, and prints one line for each of them:
 * {@code REPORT PID INDEX,INDEX...}, with one list for each resource named.
 *
 * <p>Arguments: HOST PORT JAR TASKMANAGERS RESOURCE...; every TaskManager must have one slot, so that
 * each runs one subtask.
 */
public final class Report {
    private static final class Ask extends RichMapFunction<Long, Long> {
        private final ArrayList<String> resources;

        private Ask(List<String> resources) {
            this.resources = new ArrayList<>(resources);
        }

        /** Here and not in map(): a subtask that is late may be left without an element. */
        @Override
        public void open(OpenContext context) {
            StringBuilder line = new StringBuilder("REPORT " + ProcessHandle.current().pid());
            for (String resource : resources) {
                List<String> indexes = new ArrayList<>();
                for (ExternalResourceInfo info : getRuntimeContext().getExternalResourceInfos(resource)) {
                    indexes.add(info.getProperty("index").orElse("none"));
                }
                line.append(' ').append(String.join(",", indexes));
            }
            ListAccumulator<String> report = new ListAccumulator<>();
            getRuntimeContext().addAccumulator("report", report);
            report.add(line.toString());
        }

        @Override
        public Long map(Long element) {
            return element;
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> rest = new ArrayList<>(List.of(arguments));
        String host = rest.remove(0);
        int port = Integer.parseInt(rest.remove(0));
        String jar = rest.remove(0);
        int taskManagers = Integer.parseInt(rest.remove(0));
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createRemoteEnvironment(host, port, taskManagers, jar);
        // All subtasks are connected, or Flink would place each by itself: one that has ended leaves its slot
        // to the next, and a TaskManager would be asked twice and another never.
        environment
                .fromSequence(1, taskManagers)
                .rebalance()
                .map(new Ask(rest))
                .sinkTo(new DiscardingSink<>());
        List<String> lines = environment.execute("report").getAccumulatorResult("report");
        Collections.sort(lines);
        lines.forEach(System.out::println);
    }
}
