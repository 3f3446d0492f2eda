import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the tools of Apache Kafka one after the other in one virtual machine, as their scripts would, and prints what each printed.
 * Arguments: the file of commands, the bootstrap address, and a folder of files for the commands. A command is a line `NAME CLASS ARGUMENT.. [< INPUT]`; in it
 * `$B` is the address, `$D` the folder, `\n` and `\s` in the input are a new line and a space.
 */
public final class Tools {
  /** The end of the command that runs. */
  static volatile CompletableFuture<Integer> end = new CompletableFuture<>();

  public static void main(String[] arguments) throws Exception {
    Exit.setExitProcedure((code, message) -> end(code));
    Exit.setHaltProcedure((code, message) -> end(code));
    // Tools that add a hook wait for it at the end of their process only.
    Exit.setShutdownHookAdder((name, hook) -> { });
    PrintStream out = System.out;
    for (String line : Files.readAllLines(Path.of(arguments[0]))) {
      if (line.isBlank() || line.startsWith("#")) continue;
      run(line.replace("$B", arguments[1]).replace("$D", arguments[2]), out);
    }
    out.flush();
    Runtime.getRuntime().halt(0);
  }

  /** A tool never comes back from exit, so its thread stays here. */
  static void end(int code) {
    end.complete(code);
    LockSupport.park();
    end(code);
  }

  static void run(String line, PrintStream out) throws Exception {
    String[] parts = line.split(" < ", 2);
    List<String> words = new ArrayList<>(List.of(parts[0].trim().split(" +")));
    String name = words.remove(0);
    String tool = words.remove(0);
    words.replaceAll(word -> word.replace("\\s", " ").replace("''", ""));
    String input = parts.length < 2 ? "" : parts[1].replace("\\n", "\n").replace("\\s", " ");
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    PrintStream captured = new PrintStream(bytes, true);
    InputStream in = System.in;
    System.setIn(new ByteArrayInputStream(input.getBytes()));
    System.setOut(captured);
    System.setErr(captured);
    CompletableFuture<Integer> ended = new CompletableFuture<>();
    end = ended;
    Thread thread = new Thread(() -> ended.complete(call(tool, words, captured)), "tool");
    thread.setDaemon(true);
    thread.start();
    String code;
    try {
      code = ended.get(60, TimeUnit.SECONDS).toString();
    } catch (TimeoutException late) {
      code = "none within a minute";
    }
    System.setIn(in);
    out.println("### " + name);
    out.print(bytes);
    out.println("### exit " + code);
    out.flush();
  }

  static int call(String tool, List<String> words, PrintStream captured) {
    try {
      Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) words.toArray(new String[0]));
      return 0;
    } catch (InvocationTargetException thrown) {
      captured.println(thrown.getCause());
      return 1;
    } catch (ReflectiveOperationException missing) {
      captured.println(missing);
      return 1;
    }
  }
}
