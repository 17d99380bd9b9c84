// The section of compared checkpoints, whose code arrives when it is first opened.
import { element } from "../dom.js";
import { Unreachable } from "../source.js";

/** @import { Context } from "../app.js" */

export function checkpointSection(/** @type {Context} */ context) {
  const { t, state } = context;
  const body = element("div");
  /** @type {import("./training-comparison.js").CheckpointComparison} */
  let comparison;
  const toggled = async () => {
    section.toggleAttribute("data-panel", section.open);
    try {
      const { CheckpointComparison } = await import("./training-comparison.js").catch(() => {
        throw new Unreachable("");
      });
      comparison ??= new CheckpointComparison(context, section, body);
      await comparison.toggled();
    } catch (error) {
      context.failed(error);
    }
  };
  const section = /** @type {HTMLDetailsElement} */ (
    element(
      "details.checkpoints",
      { ontoggle: toggled },
      element("summary", element("h2", t("training.checkpoints"))),
      element("p.quiet", t("training.checkpoints.told")),
    )
  );
  if (state.first) section.open = true;
  return { section, body };
}
