// A pointer that drags: pressed on an element, and followed until it is let go, once a frame.

/**
 * Call while a pointer drags.
 * @param {Element & GlobalEventHandlers} element
 * @param {(event: PointerEvent) => boolean} taken  Whether what is pressed is dragged
 * @param {(event: PointerEvent) => void} moved  Called at most once in a frame of the screen
 */
export function onDrag(element, taken, moved) {
  /** @type {PointerEvent | null} */
  let last = null;
  /** @param {PointerEvent} event */
  const follow = (event) => {
    const isDue = last !== null;
    last = event;
    if (isDue) return;
    requestAnimationFrame(() => {
      moved(last);
      last = null;
    });
  };
  element.onpointerdown = (event) => {
    if (event.button || !taken(event)) return;
    element.setPointerCapture(event.pointerId);
    element.onpointermove = follow;
  };
  element.onlostpointercapture = () => {
    element.onpointermove = null;
  };
}
