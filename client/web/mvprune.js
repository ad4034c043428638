// Opens an artifact of mvprune, and answers with it. The work is done by the C interface in mvprune.wasm: mvprune.h.

const HEADERS = { cache: "default" };
/** The files of an artifact that the library reads; what else a manifest names is not fetched. */
const READ = new Set(["config.json", "weights.safetensors", "tokenizer.json", "tokenizer_config.json"]);
/** sizeof(mvprune_texts) and sizeof(mvprune_file), where pointers have 4 bytes. */
const TEXTS_BYTES = 40;
const FILE_BYTES = 12;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Opens the artifact in the folder at `url`: an address, or in Node also the path of a folder. */
export async function open(url, options = {}) {
  const read = options.read ?? reader(url, options.signal);
  const progress = counter(options.onProgress);
  const manifestBytes = await read("manifest.json", () => {});
  const names = wanted(manifestBytes);
  progress.expect(names);
  const [library, ...contents] = await Promise.all([
    Library.start(options.wasm),
    ...names.map(({ path }) => read(path, progress.add)),
  ]);
  const files = [["manifest.json", manifestBytes], ...names.map(({ path }, i) => [path, contents[i]])];
  return new Model(library, library.open(files));
}

/** What a model answers. Calls are computed one after another, on the thread that calls. */
class Model {
  #library;
  #address;
  #facts;

  constructor(library, address) {
    this.#library = library;
    this.#address = address;
    this.#facts = library.describe(address);
  }

  /** The task, the fields of an input, the labels and more. */
  get facts() {
    return this.#facts;
  }

  /** The answer to one input, or to each input of a list. A text stands for an input with one field. */
  async predict(inputs) {
    const many = Array.isArray(inputs);
    const field = this.#facts.fields?.[0]?.name ?? "text";
    const rows = (many ? inputs : [inputs]).map((input) => (typeof input === "string" ? { [field]: input } : input));
    const answers = this.#library.predict(this.#open(), JSON.stringify(rows));
    return many ? answers : answers[0];
  }

  /** The vector of a text, or of each text of a list. */
  async encode(texts, { promptName, dimensions = 0 } = {}) {
    const many = Array.isArray(texts);
    const vectors = this.#library.encode(this.#open(), many ? texts : [texts], promptName, dimensions);
    return many ? vectors : vectors[0];
  }

  /** Frees the model's memory. */
  close() {
    if (this.#address) this.#library.close(this.#address);
    this.#address = 0;
  }

  #open() {
    if (!this.#address) throw new Error("the model is closed");
    return this.#address;
  }
}

/** The functions of mvprune.wasm, for values of JavaScript. */
class Library {
  static async start(source) {
    const library = new Library();
    const module = await (source === undefined ? own() : compile(source));
    const page = {
      read_number: (at, bytes) => Number(decoder.decode(library.#bytes(at).subarray(0, bytes))),
      write_number: (value, at) => encoder.encodeInto(shortest(value), library.#bytes(at)).written,
    };
    const imports = { Math, page };
    library.exports = (await WebAssembly.instantiate(module, imports)).exports;
    library.exports._initialize();
    return library;
  }

  open(files) {
    return this.#scoped((scope) => {
      const table = scope.take(FILE_BYTES * files.length);
      files.forEach(([name, content], i) => {
        const entry = [scope.text(name).at, scope.bytes(content), content.length];
        new Uint32Array(this.exports.memory.buffer, table + FILE_BYTES * i, 3).set(entry);
      });
      return scope.result((out, error) => this.exports.mvprune_open_files(table, files.length, 0, out, error));
    });
  }

  describe(model) {
    return this.#scoped((scope) => {
      const at = scope.result((out, error) => this.exports.mvprune_describe(model, out, error));
      return JSON.parse(this.#string(at));
    });
  }

  predict(model, inputs) {
    return this.#scoped((scope) => {
      const { at, bytes } = scope.text(inputs);
      const output = scope.result((out, error) => this.exports.mvprune_predict(model, at, bytes, 0, out, error));
      const text = this.#string(this.exports.mvprune_output_text(output, 0));
      this.exports.mvprune_output_free(output);
      return JSON.parse(text);
    });
  }

  encode(model, texts, promptName, dimensions) {
    if (texts.some((text) => text.includes("\0"))) throw new Error("a text must not contain the character U+0000");
    if (!texts.length) return [];
    return this.#scoped((scope) => {
      const addresses = scope.bytes(new Uint8Array(Uint32Array.from(texts, (text) => scope.text(text).at).buffer));
      const prompt = promptName === undefined ? 0 : scope.text(promptName).at;
      const given = scope.take(TEXTS_BYTES);
      const view = new DataView(this.exports.memory.buffer, given, TEXTS_BYTES);
      [TEXTS_BYTES, addresses, 0].forEach((value, i) => view.setUint32(4 * i, value, true));
      view.setBigInt64(16, BigInt(texts.length), true);
      view.setUint32(24, prompt, true);
      view.setBigInt64(32, BigInt(dimensions), true);
      const output = scope.result((out, error) => this.exports.mvprune_encode(model, given, 0, out, error));
      const shape = scope.take(16);
      const at = this.exports.mvprune_output_values(output, shape, shape + 8);
      const [rows, columns] = new BigInt64Array(this.exports.memory.buffer, shape, 2).values();
      const values = new Float32Array(this.exports.memory.buffer, at, Number(rows * columns)).slice();
      this.exports.mvprune_output_free(output);
      return texts.map((_, i) => values.subarray(i * Number(columns), (i + 1) * Number(columns)));
    });
  }

  close(model) {
    this.exports.mvprune_close(model);
  }

  #string(at) {
    const bytes = this.#bytes(at);
    return decoder.decode(bytes.subarray(0, bytes.indexOf(0)));
  }

  /** The memory from an address on. */
  #bytes(at) {
    return new Uint8Array(this.exports.memory.buffer, at >>> 0);
  }

  /** Calls with what takes memory of the library, all of which is free afterwards. */
  #scoped(call) {
    const { exports } = this;
    const taken = [];
    const scope = {
      take: (bytes) => {
        const at = exports.malloc(Math.max(bytes, 1)) >>> 0;
        if (!at) throw new Error("there is not enough memory");
        taken.push(at);
        new Uint8Array(exports.memory.buffer, at, bytes).fill(0);
        return at;
      },
      bytes: (content) => {
        const at = scope.take(content.length);
        new Uint8Array(exports.memory.buffer, at, content.length).set(content);
        return at;
      },
      text: (text) => {
        const content = encoder.encode(`${text}\0`);
        return { at: scope.bytes(content), bytes: content.length - 1 };
      },
      result: (run) => {
        const out = scope.take(8);
        const status = run(out, out + 4);
        const [value, error] = new Uint32Array(exports.memory.buffer, out, 2);
        if (!status) return value;
        const text = error ? this.#string(exports.mvprune_error_text(error)) : "the library has failed";
        exports.mvprune_error_free(error);
        throw new Error(text);
      },
    };
    try {
      return call(scope);
    } finally {
      taken.forEach((at) => exports.free(at));
    }
  }
}

/** The shortest decimal that is read as the same float. */
function shortest(value) {
  let digits = 1;
  while (Math.fround(Number(value.toPrecision(digits))) !== value) digits += 1;
  return String(Number(value.toPrecision(digits)));
}

/** The files that answers need, as the manifest has them. */
function wanted(bytes) {
  let files;
  try {
    files = JSON.parse(decoder.decode(bytes)).files;
  } catch {
    files = undefined;
  }
  if (!Array.isArray(files)) throw new Error("manifest.json is not the manifest of an artifact");
  return files.filter(({ path }) => READ.has(path));
}

/** Adds up the bytes of all files for a caller who wants to know. */
function counter(tell = () => {}) {
  let total = 0;
  let loaded = 0;
  return {
    expect: (files) => {
      total = files.reduce((sum, { size_bytes: bytes }) => sum + bytes, 0);
    },
    add: (bytes) => {
      loaded += bytes;
      tell({ loaded, total });
    },
  };
}

/** Reads files of a folder: read(path, told) gives the bytes, and tells how many came. */
function reader(url, signal) {
  const isPath = inNode() && !/^[a-z]+:/i.test(String(url));
  if (isPath || String(url).startsWith("file:")) return fileReader(url);
  const base = new URL(`${String(url).replace(/\/*$/, "")}/`, globalThis.location?.href);
  return async (path, told) => {
    const address = new URL(path, base);
    const answer = await fetch(address, { ...HEADERS, signal });
    if (!answer.ok) throw new Error(`${address}: the server answers ${answer.status} ${answer.statusText}`.trim());
    if (!answer.body) return new Uint8Array(await answer.arrayBuffer());
    const parts = [];
    for (const stream = answer.body.getReader(); ; ) {
      const { done, value } = await stream.read();
      if (done) return joined(parts);
      parts.push(value);
      told(value.length);
    }
  };
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function fileReader(url) {
  return async (path, told) => {
    const { readFile } = await import("node:fs/promises");
    const folder = String(url).startsWith("file:") ? new URL(`${String(url).replace(/\/*$/, "")}/`) : `${url}/`;
    const bytes = await readFile(typeof folder === "string" ? folder + path : new URL(path, folder));
    told(bytes.length);
    return new Uint8Array(bytes);
  };
}

function inNode() {
  return typeof process !== "undefined" && Boolean(process.versions?.node);
}

/** A module whose one function multiplies and adds in one instruction of relaxed SIMD. */
const RELAXED = new Uint8Array([
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0],
  ...[65, 1, 253, 17, 65, 1, 253, 17, 65, 1, 253, 17, 253, 133, 2, 11],
]);

let compiled;

/** The WebAssembly file beside this module that suits the engine, compiled once for all models of a page. */
function own() {
  compiled ??= compile(read()).catch((error) => {
    compiled = undefined; // the next model tries again
    throw error;
  });
  return compiled;
}

async function read() {
  const isRelaxed = WebAssembly.validate(RELAXED);
  const url = isRelaxed ? new URL("mvprune-relaxed.wasm", import.meta.url) : new URL("mvprune.wasm", import.meta.url);
  if (url.protocol !== "file:") return fetch(url);
  const { readFile } = await import("node:fs/promises");
  return readFile(url);
}

async function compile(source) {
  const given = await source;
  if (given instanceof WebAssembly.Module) return given;
  if (typeof Response === "undefined" || !(given instanceof Response)) return WebAssembly.compile(given);
  if (!given.ok) throw new Error(`${given.url}: the server answers ${given.status} ${given.statusText}`.trim());
  // Browsers keep the optimized code of a stream for the next visit.
  const isTyped = given.headers.get("Content-Type") === "application/wasm";
  return isTyped ? WebAssembly.compileStreaming(given) : WebAssembly.compile(await given.arrayBuffer());
}
