// A canvas that a pointer drags and a wheel zooms; a press that does not drag is a click.
/** @import { Viewport } from "../views/atlas-viewport.js" */

/** @typedef {{left: number, top: number}} Point  Pixels from where the viewport begins */

/**
 * @typedef {object} Moves
 * @property {() => Viewport} view
 * @property {() => Point} origin  Where the viewport begins on the canvas
 * @property {() => void} changed  Another part is seen
 * @property {(point: Point) => void} clicked
 * @property {(point: Point) => void} [hovered]  A mouse is there, and presses nothing
 */

// How far a pointer may tremble in a click, in pixels.
const STILL = 4;
// Pixels of a line that a wheel turns by, and how much of a power of 2 each pixel zooms by.
const WHEEL_LINE = 30;
const WHEEL_ZOOM = 0.004;
const PINCH_ZOOM = 0.02;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Moves} moves
 * @param {AbortSignal} signal
 */
export function panZoom(canvas, { view, origin, changed, clicked, hovered }, signal) {
  /** @type {(Point & {from: Point, pointer: number, still: boolean}) | null} */
  let press = null;

  /** @param {MouseEvent} event @returns {Point} */
  const pointOf = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    const { left, top } = origin();
    return { left: clientX - box.left - left, top: clientY - box.top - top };
  };

  /** @param {PointerEvent} event */
  const pressed = (event) => {
    if (event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const at = pointOf(event);
    press = { ...at, from: at, pointer: event.pointerId, still: true };
  };

  /** @param {PointerEvent} event */
  const pointed = (event) => {
    const at = pointOf(event);
    if (!press && event.pointerType === "mouse" && event.buttons === 0) hovered?.(at);
    if (press?.pointer !== event.pointerId) return;
    press.still &&= Math.hypot(at.left - press.from.left, at.top - press.from.top) < STILL;
    if (press.still) return;
    view().pan(at.left - press.left, at.top - press.top);
    Object.assign(press, at);
    changed();
  };

  const released = () => {
    const isClick = press?.still;
    const at = press;
    press = null;
    if (isClick) clicked(at);
  };

  /** @param {WheelEvent} event */
  const wheel = (event) => {
    // Seen whole, it goes no further away: the wheel scrolls the page instead.
    if (view().isWhole && event.deltaY > 0) return;
    event.preventDefault();
    const { left, top } = pointOf(event);
    const isOfLines = event.deltaMode === WheelEvent.DOM_DELTA_LINE;
    const pixels = event.deltaY * (isOfLines ? WHEEL_LINE : 1);
    // Two fingers on a touchpad come as a wheel with Ctrl.
    const speed = event.ctrlKey ? PINCH_ZOOM : WHEEL_ZOOM;
    view().zoomBy(2 ** (-pixels * speed), left, top);
    changed();
  };

  canvas.addEventListener("pointerdown", pressed, { signal });
  canvas.addEventListener("pointermove", pointed, { signal });
  canvas.addEventListener("pointerup", released, { signal });
  canvas.addEventListener("pointercancel", () => (press = null), { signal });
  // What the wheel does here it does not do to the page.
  canvas.addEventListener("wheel", wheel, { signal, passive: false });
}
