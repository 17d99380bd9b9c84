"""Beam search changes the order of its rows between steps, and each step is seen as it was."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")

PROMPT, NEW = 5, 6


@pytest.mark.parametrize(
    ("build", "mode"), [(models.llama, "sdpa"), (models.gpt2, "eager"), (models.mistral, "sdpa")]
)
def test_each_step_is_of_the_beams_that_it_goes_on_with(build, mode):
    model = build(mode)
    given = {"input_ids": models.tokens(2, PROMPT)}

    def searched():
        return model.generate(
            **given,
            max_new_tokens=NEW,
            num_beams=3,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )

    alone = searched()
    with gh.watch(model, eager.STATISTICS) as seen:
        output = searched()
    assert torch.equal(output.sequences, alone.sequences)
    assert torch.equal(output.sequences_scores, alone.sequences_scores)
    assert all(map(torch.equal, output.scores, alone.scores))

    rows = output.beam_indices[:, :NEW]
    assert len(rows.unique()) > 2
    for name, weights in eager.weights_of(build, {"input_ids": output.sequences[:, :-1]}).items():
        for place, step in enumerate(seen[name].steps):
            query, keys = PROMPT + place, PROMPT + place + 1
            assert step.position == query
            # The row that chose a word has read the one before it.
            row = rows[:, place + 1]
            received = step.received[row]
            torch.testing.assert_close(received, weights[..., query, :keys], rtol=3e-5, atol=3e-5)
