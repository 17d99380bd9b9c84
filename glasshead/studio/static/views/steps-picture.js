// The matrices as a picture: as they stand on the page.

const [MARGIN, TOP] = [24, 60];

export function picture(frame, title) {
  const marks = [{ x: MARGIN, y: 34, text: title, size: 18, weight: 600 }];
  const figure = { width: 0, height: 0, marks };
  // What is out of sight is laid out, too.
  frame.classList.toggle("whole");
  const from = frame.getBoundingClientRect();
  for (const each of frame.querySelectorAll("td[data-cell], th, caption > *")) {
    const { left, top, width, height } = each.getBoundingClientRect();
    const [x, y] = [left - from.left + MARGIN, top - from.top + TOP];
    marks.push(...drawn(each, { x, y, width, height }));
    figure.width = Math.max(figure.width, x + width + MARGIN);
    figure.height = Math.max(figure.height, y + height + MARGIN);
  }
  frame.classList.toggle("whole");
  return figure;
}

function drawn(each, box) {
  const { backgroundColor, color, fontSize, fontWeight: weight } = getComputedStyle(each);
  const { x, y, width, height } = box;
  const middle = { x: x + width / 2, y: y + height / 2 + 4, anchor: "middle" };
  const text = { ...middle, text: each.textContent, fill: color, size: parseFloat(fontSize) };
  // The page's titles have serifs, which are narrower than the picture's letters of that size.
  if (each.matches("caption *")) return [{ ...text, x, anchor: "start", weight, size: 12 }];
  if (each.matches(".dense thead th")) return [{ ...text, x: text.x - 4, y, rotate: 90, anchor: "start" }];
  if (each.matches("tbody th")) return [{ ...text, x: x + width - 6, anchor: "end" }];
  if (each.matches("th")) return [text];
  const marks = [{ ...box, fill: backgroundColor }];
  if (each.matches(".negative")) {
    marks.push({ x: x + 3, y: y + 3, width: width - 6, height: height - 6, fill: "paper" });
  }
  if (each.matches(".hidden")) marks.push({ d: `M${x} ${y + height}l${width} ${-height}`, stroke: "rule" });
  return [...marks, text];
}
