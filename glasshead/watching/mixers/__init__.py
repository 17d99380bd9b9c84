"""Layers that mix tokens without attention, and the weights that they imply.

A linear attention, a delta rule, a state space, a gated recurrence or a short convolution computes
each output as y_t = Σ_s W_ts v_s, for each head, once its gates are fixed at those of the run. So W
has the place of attention weights; it is signed, and its rows need not sum to 1.

    kinds.py        Mix, Kind        What each kernel of transformers computes, read from the inputs
                                     that it is given.
    recurrence.py   Recurrence,      W as an operator: scans over the tokens forwards, W·R, and
                    Band             backwards, Wᵀ·L.
    weights.py      ImpliedWeights   The lazy matrix of such an operator, as `Weights` of attention.
    ledger.py       Ledger           Which text a run continues, by the state that it begins with.
    observer.py     MixerObserver    One `watch(…, mixers=True)`: checks each run, and records it.

A mixer is known by the function that it calls, `FUNCTIONS` in kinds.py, or by its class, in
interception/mixer_kernels.py. To add one, write what its inputs mean as a `Mix`: each run is
rebuilt from its weights and values, and a reading that is wrong raises an `UnseenError`.
"""
