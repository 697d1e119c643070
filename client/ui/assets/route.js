/* Where the page is: #/VIEW/ID?query. */

export function current() {
  const [path, query] = (location.hash.replace(/^#/, "") || "/fleet").split("?");
  const [, view = "fleet", id = ""] = path.split("/");
  let name = "";
  try {
    name = decodeURIComponent(id);
  } catch (none) { /* a link that somebody cut */
  }
  return {view, id: name, query: new URLSearchParams(query ?? ""), text: location.hash};
}

export const go = (hash) => {
  location.hash = hash;
};
