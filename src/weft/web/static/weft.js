// The runtime of models that `weft compile --target webgpu` has written: it loads a plan and its
// weights, and runs the plan on the GPU by WebGPU. It depends on nothing, and needs no special
// headers: any static host will do. Types are in weft.d.ts.

const FORMAT = 1; // of plans
const ALIGNMENT = 256; // of parts of a buffer, in bytes: the largest that WebGPU asks for
const OPEN_GROUPS = 256; // work-groups of a launch whose number the plan leaves open
const MOST_SCRATCH = 128 << 20; // bytes of scratch memory of a launch
const HEAD_WORDS = 8; // zeros before the places of arrays
const RECORD = 32; // bytes of a status record
const MOST_INSTANCES = 4; // sizes of a model with memory of their own

// ---- errors -------------------------------------------------------------------------------------

/** Base of all errors of this module. */
export class WeftError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}
/** There is no WebGPU here: an old browser, a page without https, no adapter. */
export class NoWebGPUError extends WeftError {}
/** The model needs more than this GPU has. */
export class LimitError extends WeftError {}
/** The GPU was lost (a driver that was restarted, a GPU that was removed): load the model again. */
export class DeviceLostError extends WeftError {}
/** A file is missing, cut short, or of another version. */
export class LoadError extends WeftError {}
/** An input has another type or shape than the model takes. */
export class InputError extends WeftError {}
/** A check in a kernel failed, such as an index out of range. */
export class KernelError extends WeftError {}

// ---- the device ---------------------------------------------------------------------------------

const LIMITS = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupsPerDimension",
];
let shared = null; // promise of the device that all models of this page use

/** Return the GPUDevice of this page, with the highest limits that its adapter has. */
export function openDevice() {
  if (shared === null) {
    const opening = open();
    shared = opening;
    const forget = () => { if (shared === opening) shared = null; };
    opening.then((device) => device.lost.then(forget), forget);
  }
  return shared;
}

async function open() {
  if (!globalThis.isSecureContext) {
    throw new NoWebGPUError("WebGPU needs a secure page: serve it by https, or from localhost");
  }
  if (!navigator.gpu) {
    throw new NoWebGPUError("this browser has no WebGPU: current versions of Chrome, Edge, " +
                            "Safari and Firefox have it");
  }
  const adapter = await navigator.gpu.requestAdapter();
  if (adapter === null) {
    throw new NoWebGPUError("this browser has WebGPU, but found no GPU that it may use: turn on " +
                            "hardware acceleration in its settings, or update the driver");
  }
  const requiredLimits = {};
  for (const name of LIMITS) {
    if (name in adapter.limits) requiredLimits[name] = adapter.limits[name];
  }
  return adapter.requestDevice({ requiredLimits });
}

/**
 * Run `make` and return its result; what the device refuses becomes an error of a class. The scopes
 * of errors are a stack that all models of a device share, so nothing may be awaited between them.
 */
async function checked(device, kind, what, make) {
  device.pushErrorScope("out-of-memory");
  device.pushErrorScope("validation");
  let made;
  let refused;
  try {
    made = make();
  } finally {
    refused = Promise.all([device.popErrorScope(), device.popErrorScope()]);
  }
  const [invalid, memory] = await refused;
  if (memory !== null) throw new LimitError(`${what}: the memory of the GPU does not suffice`);
  if (invalid !== null) throw new kind(`${what}: ${invalid.message}`);
  return made;
}

// Multiply-adds of kernels round once. Where those of the GPU do, too, kernels use them.
const FMA = `
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(1) fn tried() { x[3] = fma(x[0], x[1], x[2]); }`;
const fusing = new WeakMap(); // by device: promise of whether it rounds once

/** Try whether fma() of a device rounds once: (1 + e)(1 + e) - 1 - 2 e is e squared then. */
function isFused(device) {
  if (!fusing.has(device)) fusing.set(device, tryFused(device));
  return fusing.get(device);
}

async function tryFused(device) {
  const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
  const memory = device.createBuffer({ size: 16, usage: STORAGE | COPY_DST | COPY_SRC });
  const staging = device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ });
  const pipeline = device.createComputePipeline({
    layout: "auto", compute: { module: device.createShaderModule({ code: FMA }) } });
  const e = 2 ** -23;
  device.queue.writeBuffer(memory, 0, new Float32Array([1 + e, 1 + e, -1 - 2 * e]));
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [{ binding: 0, resource: { buffer: memory } }] }));
  pass.dispatchWorkgroups(1);
  pass.end();
  encoder.copyBufferToBuffer(memory, 0, staging, 0, 16);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const found = new Float32Array(staging.getMappedRange())[3];
  memory.destroy();
  staging.destroy();
  return found === e * e;
}

// ---- types and sizes ----------------------------------------------------------------------------

const ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  uint64: BigUint64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, float16: globalThis.Float16Array ?? Uint16Array, bfloat16: Uint16Array,
  float32: Float32Array, float64: Float64Array,
};

const OPERATIONS = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, neg: (a) => -a,
  floordiv: (a, b) => Math.floor(a / b), mod: (a, b) => a - b * Math.floor(a / b),
  min: Math.min, max: Math.max, abs: Math.abs, where: (c, a, b) => (c ? a : b),
  lt: (a, b) => a < b, le: (a, b) => a <= b, eq: (a, b) => a === b, ne: (a, b) => a !== b,
  and: (a, b) => a && b, or: (a, b) => a || b, not: (a) => !a,
};

/** Return a size of a plan: a number, the name of a variable, or [operation, operands...]. */
function evaluate(size, values) {
  if (typeof size === "number") return size;
  if (typeof size === "string") return values[size];
  return OPERATIONS[size[0]](...size.slice(1).map((operand) => evaluate(operand, values)));
}

const aligned = (nbytes, to = ALIGNMENT) => Math.ceil(nbytes / to) * to;
const elements = (shape) => shape.reduce((product, n) => product * n, 1);
const shown = (shape) => `[${shape.map((n) => (Array.isArray(n) ? "?" : n)).join(", ")}]`;

// ---- inputs -------------------------------------------------------------------------------------

/** Return what was given for an input as flat data and its shape (null where nothing says it). */
function opened(input, given) {
  if (ArrayBuffer.isView(given)) return { data: given, shape: null };
  if (typeof given === "number" || typeof given === "boolean" || typeof given === "bigint") {
    return { data: [given], shape: [] };
  }
  if (Array.isArray(given)) {
    const shape = [];
    for (let part = given; Array.isArray(part); part = part[0]) shape.push(part.length);
    const data = given.flat(Infinity);
    if (data.length !== elements(shape)) {
      throw new InputError(`${input.name}: nested arrays of unequal lengths`);
    }
    return { data, shape: shape.length > 1 ? shape : null };
  }
  if (given !== null && typeof given === "object" && "data" in given) {
    return { data: given.data, shape: given.shape ? [...given.shape] : null };
  }
  throw new InputError(`${input.name}: found ${given === null ? "null" : typeof given}, ` +
                       `expected a ${input.dtype} array`);
}

/** Return data as a typed array of the input's type; other typed arrays are refused. */
function converted(input, data) {
  const kind = ARRAYS[input.dtype];
  if (data instanceof kind) return data;
  if (data instanceof Uint8ClampedArray && kind === Uint8Array) return new Uint8Array(data);
  if (!Array.isArray(data)) {
    throw new InputError(`${input.name}: found a ${data?.constructor?.name}, expected a ` +
                         `${kind.name} (${input.dtype})`);
  }
  const big = kind === BigInt64Array || kind === BigUint64Array;
  try {
    return kind.from(data, big ? BigInt : input.dtype === "bool" ? (v) => (v ? 1 : 0) : undefined);
  } catch (error) {
    throw new InputError(`${input.name}: ${error.message}`, { cause: error });
  }
}

/** Find the values of variables by which a shape fits; note them, and refuse what does not fit. */
function matchShape(input, shape, values, variables) {
  const refuse = () => {
    throw new InputError(`${input.name}: found the shape ${shown(shape)}, expected ` +
                         shown(input.shape.map((n) => (n in values ? values[n] : n))));
  };
  if (shape.length !== input.shape.length) refuse();
  input.shape.forEach((size, axis) => {
    if (typeof size === "string" && !(size in values)) {
      const { min, max } = variables.find((v) => v.name === size);
      if (shape[axis] < min || shape[axis] > max) {
        throw new InputError(`${input.name}: found the size ${shape[axis]} on axis ${axis}, ` +
                             `expected ${size} from ${min} to ${max}`);
      }
      values[size] = shape[axis];
    }
  });
  if (input.shape.some((size, axis) => evaluate(size, values) !== shape[axis])) refuse();
}

/** Return the shape of flat data of a length, if all sizes but one axis are known. */
function shapeOf(input, length, values) {
  const unknown = input.shape.filter((size) => typeof size === "string" && !(size in values));
  if (unknown.length > 1 || new Set(unknown).size < unknown.length) {
    throw new InputError(`${input.name}: pass {data, shape}: its shape is ${shown(input.shape)}`);
  }
  const known = input.shape.map((size) => (size === unknown[0] ? 1 : evaluate(size, values)));
  const found = known.map((size, axis) => (
    input.shape[axis] === unknown[0] ? length / elements(known) : size));
  if (elements(found) !== length || !found.every(Number.isInteger)) {
    throw new InputError(`${input.name}: found ${length} elements, expected the shape ` +
                         shown(input.shape));
  }
  return found;
}

/** Return the inputs of a call as typed arrays in the order of the plan, and the sizes. */
function checkInputs(plan, given) {
  const names = plan.inputs.map((input) => input.name);
  const first = given[0];
  if (given.length === 1 && first !== null && typeof first === "object" &&
      Object.getPrototypeOf(first) === Object.prototype && !("data" in first)) {
    const unknown = Object.keys(first).filter((name) => !names.includes(name));
    if (unknown.length) {
      throw new InputError(`found the input ${unknown[0]}, expected ${names.join(", ")}`);
    }
    given = names.map((name) => first[name]);
  }
  if (given.length !== names.length || given.some((value) => value === undefined)) {
    const count = given.filter((value) => value !== undefined).length;
    throw new InputError(`found ${count} inputs, expected ${names.length}: ${names.join(", ")}`);
  }
  const values = {};
  const parts = plan.inputs.map((input, i) => opened(input, given[i]));
  for (const shaped of [true, false]) { // what has a shape says sizes that others only follow
    plan.inputs.forEach((input, i) => {
      const { data, shape } = parts[i];
      if ((shape !== null) === shaped) {
        const found = shape ?? shapeOf(input, data.length, values);
        matchShape(input, found, values, plan.variables);
        if (elements(found) !== data.length) {
          throw new InputError(`${input.name}: found ${data.length} elements for ${shown(found)}`);
        }
      }
    });
  }
  return { arrays: plan.inputs.map((input, i) => converted(input, parts[i].data)), values };
}

// ---- loading ------------------------------------------------------------------------------------

async function fetched(url) {
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new LoadError(`${url}: ${error.message}`, { cause: error });
  }
  if (!response.ok) throw new LoadError(`${url}: the server answers ${response.status}`);
  return response;
}

/**
 * Write bytes that arrive in pieces of any length behind each other into buffers of the GPU.
 * Writes have to be multiples of four bytes, so up to three wait for the next piece.
 */
class Blocks {
  constructor(device, sizes) {
    this.device = device;
    this.buffers = sizes.map((size) => device.createBuffer({
      label: "weights", size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST |
                                     GPUBufferUsage.COPY_SRC }));
    this.number = this.offset = 0;
    this.waiting = new Uint8Array(0);
  }

  write(piece) {
    if (this.waiting.length) {
      const joined = new Uint8Array(this.waiting.length + piece.length);
      joined.set(this.waiting);
      joined.set(piece, this.waiting.length);
      piece = joined;
    }
    while (piece.length >= 4 && this.number < this.buffers.length) {
      const buffer = this.buffers[this.number];
      const count = Math.min(piece.length & ~3, buffer.size - this.offset);
      this.device.queue.writeBuffer(buffer, this.offset, piece, 0, count);
      piece = piece.subarray(count);
      this.offset += count;
      if (this.offset === buffer.size) [this.number, this.offset] = [this.number + 1, 0];
    }
    this.waiting = piece.slice();
  }
}

/** Stream the files of weights into buffers of the GPU. */
async function loadWeights(blocks, base, files, onProgress) {
  const total = files.reduce((sum, file) => sum + file.nbytes, 0);
  let loaded = 0;
  onProgress?.({ loaded, total });
  for (const file of files) {
    const url = new URL(file.name, base);
    const reader = (await fetched(url)).body.getReader();
    let count = 0;
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw new LoadError(`${url}: ${error.message}`, { cause: error });
      });
      if (done) break;
      blocks.write(value);
      count += value.length;
      loaded += value.length;
      onProgress?.({ loaded, total });
    }
    if (count !== file.nbytes) {
      throw new LoadError(`${url}: found ${count} bytes, expected ${file.nbytes}`);
    }
  }
}

/** Compile the kernels of a plan; return for each program its layout and pipelines. */
function compile(device, plan, fused) {
  const modules = plan.shaders.map((code, i) => device.createShaderModule({
    label: `${plan.name} ${i}`, code }));
  return Promise.all(plan.programs.map(async (program) => {
    const layout = device.createBindGroupLayout({
      label: program.name,
      entries: program.bindings.map((kind, binding) => ({
        binding, visibility: GPUShaderStage.COMPUTE,
        buffer: { type: kind === "uniform" ? "uniform" : "storage" } })),
    });
    const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout] });
    const pipelines = await Promise.all(program.entries.map((entry) => (
      device.createComputePipelineAsync({
        label: `${program.name} ${entry.name}`, layout: pipelineLayout,
        compute: { module: modules[program.shader], entryPoint: entry.name,
                   constants: program.fused && fused ? { weft_fused: 1 } : {} } }))));
    return { layout, pipelines };
  })).catch((error) => {
    throw new LoadError(`${plan.name}: this browser does not compile its kernels: ` +
                        error.message, { cause: error });
  });
}

/**
 * Load a model: its plan, kernels and weights.
 *
 * @param {string | URL} url of the plan (NAME.plan.json); its weights lie beside it
 * @param options `device`: a GPUDevice of yours; `onProgress({loaded, total})`: bytes of weights
 * @returns a function: `const [y] = await model(x)`, with the properties of `Model`
 */
export async function load(url, { device: own, onProgress } = {}) {
  const base = new URL(url, globalThis.location?.href);
  const device = own ?? (await openDevice());
  const response = await fetched(base);
  const plan = await response.json().catch((error) => {
    throw new LoadError(`${base}: ${error.message}`, { cause: error });
  });
  if (plan.format !== FORMAT) {
    throw new LoadError(`${base}: found a plan of format ${plan.format}, expected ${FORMAT}: ` +
                        "use the weft.js that was written beside it");
  }
  const largest = Math.max(0, ...plan.weights.blocks);
  checkSize(device, plan.name, "its weights", largest);
  const blocks = await checked(device, LoadError, plan.name, () => (
    new Blocks(device, plan.weights.blocks)));
  const fused = plan.programs.some((program) => program.fused) && (await isFused(device));
  const [programs] = await Promise.all([
    checked(device, LoadError, plan.name, () => compile(device, plan, fused)),
    loadWeights(blocks, base, plan.weights.files, onProgress)]);
  const model = new Model(plan, device, programs, blocks.buffers);
  const call = (...inputs) => model.run(inputs);
  Object.defineProperty(call, "name", { value: plan.name });
  return Object.assign(call, {
    inputs: plan.inputs, outputs: plan.outputs, variables: plan.variables, device,
    description: plan.description, lost: device.lost, destroy: () => model.destroy(),
  });
}

function checkSize(device, name, what, nbytes) {
  const most = Math.min(device.limits.maxBufferSize, device.limits.maxStorageBufferBindingSize);
  if (nbytes > most) {
    throw new LimitError(`${name}: ${what} take ${nbytes} bytes in one buffer, and this GPU ` +
                         `allows ${most}`);
  }
}

// ---- running ------------------------------------------------------------------------------------

/** Memory and commands of a model for given sizes: what every call with these sizes shares. */
class Instance {
  constructor(model, values) {
    const { plan, device } = model;
    this.values = values;
    // One buffer holds all arrays but weights: inputs, outputs, and the arena between them.
    this.places = { input: {}, output: {}, arena: {} };
    let at = 0;
    const take = (space, index, size) => {
      this.places[space][index] = at;
      at += aligned(Math.max(size, 4));
    };
    plan.slots.inputs.forEach(({ nbytes, weight }, i) => {
      if (weight === undefined) take("input", i, evaluate(nbytes, values));
    });
    plan.slots.outputs.forEach((nbytes, i) => take("output", i, evaluate(nbytes, values)));
    plan.allocations.forEach((offset, i) => {
      this.places.arena[i] = at + evaluate(offset, values);
    });
    at += aligned(evaluate(plan.arena, values));
    checkSize(device, plan.name, "its values", at);
    this.buffers = [];
    const buffer = (label, size, usage) => {
      const made = device.createBuffer({ label, size: Math.max(aligned(size), ALIGNMENT), usage });
      this.buffers.push(made);
      return made;
    };
    const { STORAGE, UNIFORM, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
    this.heap = buffer("values", at, STORAGE | COPY_DST | COPY_SRC);
    const launches = plan.launches.map((launch) => prepare(model, launch, this.places, values));
    // Status records lie behind each other, and so do the words that tell kernels about a launch.
    const records = launches.map((l) => l.record);
    const most = Math.max(0, ...launches.map((l) => l.scratch));
    const nrecords = records.reduce((sum, n) => sum + aligned(n), 0);
    this.status = buffer("status", nrecords, STORAGE | COPY_DST | COPY_SRC);
    this.nstatus = nrecords;
    this.scratch = buffer("scratch", most, STORAGE);
    this.uniforms = buffer("uniforms", launches.reduce((n, l) => n + aligned(l.words.byteLength), 0),
                           UNIFORM | COPY_DST);
    let [uniform, record] = [0, 0];
    this.launches = launches.map((launch) => {
      device.queue.writeBuffer(this.uniforms, uniform, launch.words);
      const own = { program: launch.program, messages: launch.messages, counts: launch.counts,
                    record };
      own.group = this.group(model, launch, uniform, record);
      uniform += aligned(launch.words.byteLength);
      record += aligned(launch.record);
      return own;
    });
    // Results and status records come back in one buffer that this process can read.
    let end = 0;
    this.reads = plan.outputs.map((output) => {
      const nbytes = elements(output.shape.map((n) => evaluate(n, values))) *
                     ARRAYS[output.dtype].BYTES_PER_ELEMENT;
      const read = { ...model.place(this, output.place), size: aligned(nbytes, 4), nbytes, at: end };
      end += aligned(nbytes);
      return read;
    });
    this.statusAt = end;
    this.staging = buffer("results", end + nrecords, COPY_DST | MAP_READ);
  }

  /** Return the bind group of a launch. */
  group(model, launch, uniform, record) {
    const resource = (kind) => {
      if (kind === "uniform") {
        return { buffer: this.uniforms, offset: uniform, size: launch.words.byteLength };
      }
      if (kind === "status") return { buffer: this.status, offset: record, size: launch.record };
      if (kind === "scratch") return { buffer: this.scratch };
      const block = launch.groups[kind];
      return { buffer: block < 0 ? this.heap : model.weights[block] };
    };
    return model.device.createBindGroup({
      layout: model.programs[launch.program].layout,
      entries: model.plan.programs[launch.program].bindings.map((kind, binding) => (
        { binding, resource: resource(kind) })),
    });
  }

  destroy() {
    this.buffers.forEach((buffer) => buffer.destroy());
  }
}

/** Return the words that a launch's kernel reads, its work-groups, and the memory it needs. */
function prepare(model, launch, places, values) {
  const { program: number, buffers, variables, groups, messages = [] } = launch;
  const { plan, device } = model;
  const program = plan.programs[number];
  const head = HEAD_WORDS + buffers.length;
  const first = head + (head % 2); // 64-bit values begin at even words
  const words = new Uint32Array(aligned(4 * (first + 2 * variables.length), 16) / 4);
  buffers.forEach(([space, index, offset], k) => {
    const weight = space === "input" ? plan.slots.inputs[index].weight : undefined;
    const begin = weight === undefined ? places[space][index] : weight.offset;
    words[HEAD_WORDS + k] = (begin + offset) / program.elements[k];
  });
  variables.forEach((size, k) => {
    const value = BigInt.asUintN(64, BigInt(evaluate(size, values)));
    words[first + 2 * k] = Number(value & 0xffffffffn);
    words[first + 2 * k + 1] = Number(value >> 32n);
  });
  const room = Math.min(MOST_SCRATCH, device.limits.maxStorageBufferBindingSize) - program.shared;
  const counts = program.entries.map((entry) => {
    const most = program.own ? Math.floor(room / (program.own * entry.items)) : Infinity;
    const limit = device.limits.maxComputeWorkgroupsPerDimension;
    return Math.max(1, Math.min(entry.groups || OPEN_GROUPS, most, limit));
  });
  const threads = Math.max(...counts.map((count, i) => count * program.entries[i].items));
  const record = program.bindings.includes("status") ? RECORD : 0;
  return { program: number, groups, words, counts, record, messages,
           scratch: program.shared + program.own * threads };
}

class Model {
  constructor(plan, device, programs, weights) {
    Object.assign(this, { plan, device, programs, weights });
    this.instances = new Map(); // by sizes, the one used last at the end
    this.last = Promise.resolve();
    this.gone = null; // why it can be used no more
    device.lost.then((info) => {
      this.gone ??= new DeviceLostError(`${plan.name}: the GPU was lost (${info.message || 
        info.reason}): load the model again`);
    });
  }

  /** Run the model, one call after another. */
  run(given) {
    let checkedInputs;
    try {
      checkedInputs = checkInputs(this.plan, given);
      // What the caller changes after the call must not change this one.
      checkedInputs.arrays = checkedInputs.arrays.map((array) => array.slice());
    } catch (error) {
      return Promise.reject(error);
    }
    const done = this.last.then(() => this.turn(checkedInputs));
    this.last = done.catch(() => {});
    return done;
  }

  async turn({ arrays, values }) {
    if (this.gone !== null) throw this.gone;
    try {
      const instance = await this.at(values);
      await checked(this.device, WeftError, this.plan.name, () => this.submit(instance, arrays));
      await instance.staging.mapAsync(GPUMapMode.READ);
      const bytes = instance.staging.getMappedRange().slice(0);
      instance.staging.unmap();
      return this.results(instance, bytes);
    } catch (error) {
      await Promise.resolve(); // the news of a lost device comes before
      if (this.gone !== null && !(error instanceof WeftError)) throw this.gone;
      throw error;
    }
  }

  /** Return the instance for sizes; those used last keep their memory. */
  async at(values) {
    const key = JSON.stringify(values);
    let instance = this.instances.get(key);
    if (instance === undefined) {
      while (this.instances.size >= MOST_INSTANCES) {
        const [oldest, dropped] = this.instances.entries().next().value;
        dropped.destroy();
        this.instances.delete(oldest);
      }
      instance = await checked(this.device, WeftError, this.plan.name,
                               () => new Instance(this, values));
    }
    this.instances.delete(key);
    this.instances.set(key, instance);
    return instance;
  }

  /** Return the buffer of a slot, and the byte at which it begins. */
  place(instance, [space, index]) {
    const weight = space === "input" ? this.plan.slots.inputs[index].weight : undefined;
    return weight === undefined
      ? { buffer: instance.heap, offset: instance.places[space][index] }
      : { buffer: this.weights[weight.block], offset: weight.offset };
  }

  /** Hand inputs, launches and the copies of results to the queue. */
  submit(instance, arrays) {
    const { device, plan } = this;
    arrays.forEach((array, i) => {
      if (plan.inputs[i].slot === undefined) return; // no kernel reads it
      let bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      if (bytes.length % 4) {
        const padded = new Uint8Array(aligned(bytes.length, 4));
        padded.set(bytes);
        bytes = padded;
      }
      const { buffer, offset } = this.place(instance, ["input", plan.inputs[i].slot]);
      device.queue.writeBuffer(buffer, offset, bytes);
    });
    const encoder = device.createCommandEncoder({ label: plan.name });
    if (instance.nstatus) encoder.clearBuffer(instance.status);
    const pass = encoder.beginComputePass();
    for (const { program, group, counts } of instance.launches) {
      pass.setBindGroup(0, group);
      this.programs[program].pipelines.forEach((pipeline, i) => {
        pass.setPipeline(pipeline);
        pass.dispatchWorkgroups(counts[i]);
      });
    }
    pass.end();
    for (const { buffer, offset, size, at } of instance.reads) {
      if (size) encoder.copyBufferToBuffer(buffer, offset, instance.staging, at, size);
    }
    if (instance.nstatus) {
      encoder.copyBufferToBuffer(instance.status, 0, instance.staging, instance.statusAt,
                                 instance.nstatus);
    }
    device.queue.submit([encoder.finish()]);
  }

  /** Return results as an array of tensors, which also has them by their names. */
  results(instance, bytes) {
    const { plan } = this;
    for (const { program, messages, record } of instance.launches) {
      const { name, bindings } = plan.programs[program];
      if (bindings.includes("status")) report(name, messages, bytes, instance.statusAt + record);
    }
    const found = plan.outputs.map((output, i) => {
      const { at, nbytes } = instance.reads[i];
      return { name: output.name, dtype: output.dtype,
               shape: output.shape.map((n) => evaluate(n, instance.values)),
               data: new ARRAYS[output.dtype](bytes.slice(at, at + nbytes)) };
    });
    for (const tensor of found) {
      if (!(tensor.name in found)) Object.defineProperty(found, tensor.name, { value: tensor });
    }
    return found;
  }

  /** Give back the memory of the GPU. */
  destroy() {
    this.gone ??= new WeftError(`${this.plan.name}: the model was destroyed`);
    this.last.then(() => {
      this.instances.forEach((instance) => instance.destroy());
      this.weights.forEach((buffer) => buffer.destroy());
      this.instances.clear();
    });
  }
}

/** Raise the error of a status record, if a check of its kernel has failed. */
function report(name, messages, bytes, at) {
  const code = new Int32Array(bytes, at, 1)[0];
  if (code === 0) return;
  const message = messages[code - 1] ?? { text: `${name}: failure ${code}` };
  const [index, bound] = new BigInt64Array(bytes.slice(at + 16, at + 32));
  const where = message.where ? ` (${message.where})` : "";
  if (!message.bounds) throw new KernelError(`${message.text}${where}`);
  const found = message.wraps && index < 0n ? index - bound : index;
  const expected = bound > 0n ? `${message.wraps ? -bound : 0n} to ${bound - 1n}`
                              : "no index: the axis is empty";
  throw new KernelError(`${message.text}: found index ${found}, expected ${expected}${where}`);
}
