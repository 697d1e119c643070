/* Specs as text and as keys. */

const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
/** Lists that were not given are there, and empty. */
const entries = (map) => Object.entries(map ?? {}).filter(([, value]) => !(Array.isArray(value) && value.length === 0));
const isPlain = (value) => !isMap(value) && !Array.isArray(value);
const word = (value) =>
    (typeof value === "string" && !/^[\w./@+-][\w ./@+*-]*$/.test(value) ? JSON.stringify(value) : String(value));

function inline(value) {
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (isMap(value)) return `{${entries(value).map(([key, one]) => `${key}: ${inline(one)}`).join(", ")}}`;
  return word(value);
}

/** A spec in the form in which it was written: YAML. */
export function yaml(spec, indent = "") {
  return entries(spec)
      .map(([key, value]) => {
        if (isMap(value)) {
          const text = inline(value);
          return text.length + key.length < 60 && indent ? `${indent}${key}: ${text}` :
                                                           `${indent}${key}:\n${yaml(value, indent + "  ")}`;
        }
        return `${indent}${key}: ${inline(value)}`;
      })
      .filter((line) => line.trim())
      .join("\n");
}

/** "train.optimizer.lr" and the like, with their values as text. */
export function flat(spec, prefix = "", out = new Map()) {
  for (const [key, value] of entries(spec)) {
    const path = prefix ? `${prefix}.${key}` : key;
    if (isMap(value))
      flat(value, path, out);
    else
      out.set(path, isPlain(value) ? String(value) : inline(value));
  }
  return out;
}

/** Of several specs the keys whose values are not the same in all. */
export function differences(specs) {
  const all = specs.map((spec) => flat(spec)), paths = [...new Set(all.flatMap((keys) => [...keys.keys()]))];
  return paths.filter((path) => new Set(all.map((keys) => keys.get(path))).size > 1)
      .map((path) => ({path, values: all.map((keys) => keys.get(path) ?? null)}));
}
