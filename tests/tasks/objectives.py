"""What holds for the objective of every task whose batches are of single texts or pairs."""

import torch


def assert_parts_sum_to_the_whole(task, batches, order, parts):
    """Check that a batch dealt out to several processes has their sums of counts and losses."""
    whole = task.validate(batches.collate(order))
    dealt = [order[part::parts] for part in range(parts)]
    sums = [task.validate(batches.collate(part)) for part in dealt]
    for name in ("loss", "targets", "right"):
        torch.testing.assert_close(sum(each[name] for each in sums), whole[name])
    assert sum(map(batches.count, dealt)) == batches.count(order) == whole["targets"]
    losses = [task.loss(batches.collate(part)) for part in dealt]
    torch.testing.assert_close(sum(losses), task.loss(batches.collate(order)))
