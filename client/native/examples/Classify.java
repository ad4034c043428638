// The labels of a text: java --enable-native-access=ALL-UNNAMED Classify.java libmvprune.so.1 FOLDER TEXT
//
// Needs Java 22 or newer, whose foreign functions are no preview any more.
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

public final class Classify implements AutoCloseable {
  private static final StructLayout TEXTS =
      MemoryLayout.structLayout(
          JAVA_LONG.withName("size"),
          ADDRESS.withName("texts"),
          ADDRESS.withName("pairs"),
          JAVA_LONG.withName("count"),
          ADDRESS.withName("prompt_name"),
          JAVA_LONG.withName("dimensions"));

  private final Arena arena = Arena.ofConfined();
  private final SymbolLookup library;
  private final MemorySegment model;

  public Classify(Path file, Path folder) throws Throwable {
    library = SymbolLookup.libraryLookup(file, arena);
    MethodHandle open =
        function("mvprune_open", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS));
    MemorySegment opened = arena.allocate(ADDRESS);
    MemorySegment error = arena.allocate(ADDRESS);
    MemorySegment path = arena.allocateFrom(folder.toString());
    check((int) open.invokeExact(path, MemorySegment.NULL, opened, error), error);
    model = opened.get(ADDRESS, 0);
  }

  public Map<String, Float> logits(String text) throws Throwable {
    MethodHandle run =
        function(
            "mvprune_run_texts",
            FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS));
    MethodHandle values =
        function("mvprune_output_values", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS, ADDRESS));
    MethodHandle label = function("mvprune_label", FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_LONG));
    MethodHandle free = function("mvprune_output_free", FunctionDescriptor.ofVoid(ADDRESS));
    try (Arena call = Arena.ofConfined()) {
      MemorySegment listed = call.allocate(ADDRESS);
      listed.set(ADDRESS, 0, call.allocateFrom(text));
      MemorySegment texts = call.allocate(TEXTS); // all fields are 0
      texts.set(JAVA_LONG, 0, TEXTS.byteSize());
      texts.set(ADDRESS, offset("texts"), listed);
      texts.set(JAVA_LONG, offset("count"), 1);
      MemorySegment output = call.allocate(ADDRESS);
      MemorySegment error = call.allocate(ADDRESS);
      check((int) run.invokeExact(model, texts, MemorySegment.NULL, output, error), error);
      MemorySegment answer = output.get(ADDRESS, 0);
      MemorySegment columns = call.allocate(JAVA_LONG);
      MemorySegment first = (MemorySegment) values.invokeExact(answer, MemorySegment.NULL, columns);
      long count = columns.get(JAVA_LONG, 0);
      MemorySegment numbers = first.reinterpret(count * JAVA_FLOAT.byteSize());
      Map<String, Float> found = new LinkedHashMap<>();
      for (long i = 0; i < count; i++) {
        found.put(string((MemorySegment) label.invokeExact(model, i)), numbers.getAtIndex(JAVA_FLOAT, i));
      }
      free.invokeExact(answer);
      return found;
    }
  }

  @Override
  public void close() {
    try {
      function("mvprune_close", FunctionDescriptor.ofVoid(ADDRESS)).invokeExact(model);
    } catch (Throwable wrong) {
      throw new IllegalStateException(wrong);
    } finally {
      arena.close();
    }
  }

  private MethodHandle function(String name, FunctionDescriptor type) {
    return Linker.nativeLinker().downcallHandle(library.find(name).orElseThrow(), type);
  }

  private void check(int status, MemorySegment error) throws Throwable {
    if (status == 0) {
      return;
    }
    MethodHandle text = function("mvprune_error_text", FunctionDescriptor.of(ADDRESS, ADDRESS));
    MethodHandle free = function("mvprune_error_free", FunctionDescriptor.ofVoid(ADDRESS));
    MemorySegment failure = error.get(ADDRESS, 0);
    String said = string((MemorySegment) text.invokeExact(failure));
    free.invokeExact(failure);
    throw new IllegalArgumentException(said);
  }

  private static String string(MemorySegment address) {
    return address.reinterpret(Long.MAX_VALUE).getString(0);
  }

  private static long offset(String field) {
    return TEXTS.byteOffset(MemoryLayout.PathElement.groupElement(field));
  }

  public static void main(String[] given) throws Throwable {
    try (Classify model = new Classify(Path.of(given[0]), Path.of(given[1]))) {
      model
          .logits(given[2])
          .forEach((label, logit) -> System.out.printf(Locale.ROOT, "%s %.6f%n", label, logit));
    }
  }
}
