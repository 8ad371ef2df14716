// Types of weft.js.

/** Element types, as Weft names them; bool is a byte, and 16-bit floats may be bits. */
export type DType = keyof Arrays;

export interface Arrays {
  bool: Uint8Array;
  uint8: Uint8Array;
  uint16: Uint16Array;
  uint32: Uint32Array;
  uint64: BigUint64Array;
  int8: Int8Array;
  int16: Int16Array;
  int32: Int32Array;
  int64: BigInt64Array;
  float16: Uint16Array; // a Float16Array where the browser has it
  bfloat16: Uint16Array;
  float32: Float32Array;
  float64: Float64Array;
}

type Nested<T> = T | readonly Nested<T>[];
type Scalar<D extends DType> =
  D extends "int64" | "uint64" ? bigint | number : D extends "bool" ? boolean | number : number;

/** What a model takes for an array: flat data in row-major order, with its shape if need be. */
export type Input<D extends DType> =
  | Arrays[D]
  | { data: Arrays[D] | readonly Scalar<D>[]; shape: readonly number[] }
  | Nested<Scalar<D>>;

/** A result: flat data in row-major order. */
export interface Tensor<D extends DType = DType> {
  name: string;
  dtype: D;
  shape: number[];
  data: Arrays[D];
}

/** A size: a number, the name of a variable, or [operation, operands...]. */
export type Size = number | string | [string, ...unknown[]];

export interface Description {
  name: string;
  dtype: DType;
  shape: Size[];
}

export interface LoadOptions {
  /** A device of yours; without it all models of a page share one. */
  device?: GPUDevice;
  /** Hears how many bytes of weights have arrived. */
  onProgress?(progress: { loaded: number; total: number }): void;
}

/**
 * A loaded model. Call it with its inputs in order, or with one object that has them by name.
 * Calls run one after another. Results are an array, which also has them by their names.
 */
export interface Model<I extends unknown[] = unknown[], O extends Tensor[] = Tensor[]> {
  (...inputs: I): Promise<O>;
  (inputs: Record<string, I[number]>): Promise<O>;
  readonly description: string;
  readonly inputs: Description[];
  readonly outputs: Description[];
  /** Sizes that may change from call to call. */
  readonly variables: { name: string; min: number; max: number }[];
  readonly device: GPUDevice;
  /** Resolves when the GPU is lost: load the model again. */
  readonly lost: Promise<GPUDeviceLostInfo>;
  /** Give back the memory of the GPU. */
  destroy(): void;
}

export function load<I extends unknown[] = unknown[], O extends Tensor[] = Tensor[]>(
  url: string | URL, options?: LoadOptions): Promise<Model<I, O>>;

/** The device that all models of the page share. */
export function openDevice(): Promise<GPUDevice>;

export class WeftError extends Error {}
/** There is no WebGPU here: an old browser, a page without https, no adapter. */
export class NoWebGPUError extends WeftError {}
/** The model needs more than this GPU has. */
export class LimitError extends WeftError {}
/** The GPU was lost: load the model again. */
export class DeviceLostError extends WeftError {}
/** A file is missing, cut short, or of another version. */
export class LoadError extends WeftError {}
/** An input has another type or shape than the model takes. */
export class InputError extends WeftError {}
/** A check in a kernel failed, such as an index out of range. */
export class KernelError extends WeftError {}
