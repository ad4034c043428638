/** What a model answers with, and what it takes: see docs/native.md. */
export interface Facts {
  kind: string;
  /** The texts of an input. */
  fields: { name: string; required: boolean }[];
  [name: string]: unknown;
}

export interface Progress {
  /** Bytes that have come, and that come in all, without the manifest. */
  loaded: number;
  total: number;
}

export interface OpenOptions {
  /** Called as the files come. */
  onProgress?: (progress: Progress) => void;
  /** Stops the fetches. */
  signal?: AbortSignal;
  /** mvprune.wasm or mvprune-relaxed.wasm, where a bundler has put it elsewhere: a response, its bytes, or a compiled module. */
  wasm?: WebAssembly.Module | BufferSource | Response | Promise<Response>;
  /** Reads a file of the artifact otherwise than by fetch. */
  read?: (path: string, told: (bytes: number) => void) => Promise<Uint8Array>;
}

/** The texts of an input by their fields. */
export type Input = Record<string, unknown>;
/** An answer, with the fields that `mvpctl serve` gives it. */
export type Answer = Record<string, unknown>;

export interface EncodeOptions {
  /** One of the model's prompts, which is put before every text. */
  promptName?: string;
  /** The first numbers of each vector; 0, or left out: all of them. */
  dimensions?: number;
}

export interface Model {
  readonly facts: Facts;
  predict(input: string | Input): Promise<Answer>;
  predict(inputs: ReadonlyArray<string | Input>): Promise<Answer[]>;
  encode(text: string, options?: EncodeOptions): Promise<Float32Array>;
  encode(texts: readonly string[], options?: EncodeOptions): Promise<Float32Array[]>;
  close(): void;
}

/**
 * Opens the artifact in the folder at `url`: an address, or in Node also the path of a folder.
 *
 * @throws Error if a file is missing, is not the one that the manifest names, or makes a model of an unknown kind.
 */
export function open(url: string | URL, options?: OpenOptions): Promise<Model>;
