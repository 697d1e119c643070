/* The contrast of every text in sight with what is behind it, and of curves with the panels: those below what WCAG AA asks
   for. peer_ui.py has the page compute it. */
() => {
  const channel = (value) => {
    const s = value / 255;
    return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const probe = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (text) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = text;
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = probe.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below, share) => below.map((value, i) => top[i] * share + value * (1 - share));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, layer) => over(layer.slice(0, 3), below, layer[3]), [255, 255, 255]);
  };
  const wrong = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes]
                     .filter((node) => node.nodeType === 3 && node.data.trim())
                     .map((node) => node.data.trim())
                     .join(" ");
    if (!text || !element.checkVisibility({checkOpacity: true}) ||
        element.closest(".unseen, .skip, button:disabled, option, noscript, title, dialog:not([open])"))
      continue;
    const style = getComputedStyle(element), isDrawn = element instanceof SVGElement;
    const colour = rgba(isDrawn ? style.fill : style.color),
          back = behind(isDrawn ? element.ownerSVGElement.parentElement : element);
    const found = ratio(over(colour.slice(0, 3), back, colour[3]), back), size = parseFloat(style.fontSize),
          isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (found < (isLarge ? 3 : 4.5))
      wrong.push(`${text.slice(0, 40)}: ${found.toFixed(2)} ${element.className.baseVal ?? element.className}`);
  }
  const root = getComputedStyle(document.documentElement), panel = rgba(root.getPropertyValue("--panel"));
  for (const name of ["accent", "mark", ...Array.from({length: 10}, (_, i) => `curve-${i}`)]) {
    const found = ratio(rgba(root.getPropertyValue(`--${name}`)).slice(0, 3), panel.slice(0, 3));
    if (found < 3) wrong.push(`--${name} on a panel: ${found.toFixed(2)}`);
  }
  return wrong;
}
