// The page of an exported function: a field for each input, a button, the results and the time.

const MOST = 64; // elements that are shown and edited as text
const $ = (id) => document.getElementById(id);

function tell(text, isError = false) {
  $("status").textContent = text;
  $("status").className = isError ? "error" : "";
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Return `count` random values of a type, as people would choose them. */
function random(dtype, count) {
  const whole = !dtype.startsWith("float") && dtype !== "bfloat16";
  const most = dtype === "bool" ? 2 : 10;
  return Array.from({ length: count }, () => (
    whole ? Math.floor(Math.random() * most) : Math.round(Math.random() * 1e4) / 1e4));
}

const sizes = (shape, values) => shape.map((n) => (typeof n === "string" ? values[n] : n));
const product = (shape) => shape.reduce((a, b) => a * b, 1);
const text = (value) => (Number.isInteger(value) || typeof value === "bigint"
  ? String(value) : Number(value).toPrecision(6));

/** Return what a field says: numbers behind each other, or random ones where it is empty. */
function read(field, input, shape) {
  const words = field.value.split(/[\s,;[\]]+/).filter(Boolean);
  if (!words.length) return { data: random(input.dtype, product(shape)), shape };
  const data = words.map((word) => (/^(true|false)$/i.test(word) ? /^t/i.test(word) : Number(word)));
  if (data.some(Number.isNaN)) throw new Error(`${input.name}: numbers are expected`);
  return { data, shape };
}

function shown({ name, dtype, shape, data }) {
  const width = shape.length > 1 ? shape[shape.length - 1] : 8;
  const words = Array.from(data.subarray(0, MOST), text);
  const lines = [];
  for (let i = 0; i < words.length; i += width) lines.push(words.slice(i, i + width).join("  "));
  if (data.length > MOST) lines.push(`… ${data.length} elements`);
  return element("section", {}, element("label", {}, `${name}: ${dtype}[${shape.join(", ")}]`),
                 element("pre", {}, lines.join("\n")));
}

/** Load the model, and have the page show it. */
export async function show(load) {
  let model;
  try {
    model = await load({
      onProgress: ({ loaded, total }) => {
        if (total) tell(`Loading: ${Math.round((100 * loaded) / total)} % of the weights`);
      } });
  } catch (error) {
    return tell(`${error.message}.`, true);
  }
  $("about").textContent = model.description;
  tell("Ready.");
  const form = $("inputs");
  const knobs = model.variables.map((v) => element("input", {
    type: "number", min: v.min, max: v.max, value: Math.min(Math.max(v.min, 8), v.max) }));
  model.variables.forEach((v, i) => form.append(element("section", {}, element("label", {},
    `${v.name}, from ${v.min} to ${v.max} `, knobs[i]))));
  const fields = model.inputs.map((input) => {
    const field = element("textarea", { rows: 3, placeholder: "empty: random values" });
    form.append(element("section", {}, element("label", {}, `${input.name}: ${input.dtype}[` +
      `${input.shape.map((n) => (Array.isArray(n) ? "?" : n)).join(", ")}]`), field));
    return field;
  });
  const button = element("button", { type: "submit" }, "Run");
  form.append(button);
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const values = Object.fromEntries(model.variables.map((v, i) => [v.name, +knobs[i].value]));
      const given = model.inputs.map((input, i) => read(fields[i], input,
                                                        sizes(input.shape, values)));
      const begin = performance.now();
      const results = await model(...given);
      tell(`Done in ${(performance.now() - begin).toFixed(1)} ms.`);
      $("outputs").replaceChildren(...results.map(shown));
    } catch (error) {
      tell(error.message, true);
    }
    button.disabled = false;
  });
}
