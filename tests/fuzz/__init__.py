"""A fuzzer: random torques, controllers and ``save=`` functions, run by the scan and by the kernel.

    python -m tests.fuzz --programs 1000 --rollouts 300 --seed 0

draws 1000 programs of twenty expressions each and 300 whole rollouts. It prints each difference
with a reduced program that runs on its own, and finally one line of counts. A seed identifies a
program: seed 17 has the same expressions and inputs everywhere.

A program is a rollout of two steps by Euler's method (``programs``). Its expressions come from a
grammar of jnp and lax operations (``grammar``). They are used in the saved values, in d aux/dt and,
bounded, in the torque. Their arguments are inputs that change from step to step, for 72 bodies at
once; among them are NaN, infinities, the least and the largest integers. Of the programs

- one in five is differentiated too, which costs four times as much: in reverse mode each body
  computes the gradient of one expression, in forward mode the tangents of all; the kinds take turns
  (``derivatives``): gradients, tangents, several tangents at once, second derivatives, around
  and inside ``jax.checkpoint``, ``jax.linearize`` and ``jax.vmap``;
- another one in five also runs for a single body;
- one in ten has subnormal numbers;
- one in twenty has operations without a scalar form: there engine="auto" must agree with the scan.

Whole rollouts (``rollouts``) draw the scheme, a controller with memory of several dtypes, inputs,
the sampling, the saved values, the checkpoints, the batch and the kind of derivative.

Both engines run in a child process (``child``, ``running``), so a crash or a hang is a finding, as
a difference is. The scan is the oracle. Values agree if one of these holds, tried in this order:

1. Integers and booleans have the same bits, NaN and infinities are in the same places, and floats
   are within 32 ulp; a float that is small beside the median of its output is within 3 ulp of that
   median.
2. The scan's values move as far when its inputs are moved by up to eight ulp: "accepted".
3. The scan's values move as far under other roundings of every operation (``oracle``), or under
   other values that XLA may return for some operations (``liberties``): "accepted".
4. The values agree by 1 to 3 when the subnormal numbers of the program are zero: "subnormal".

Otherwise they differ. Then the outputs are bisected, and the tree of the expression is reduced
(``reducing``). ``--planted NAME`` runs a wrong engine (``planted``), to see whether it is found.

The other counts: "invalid" programs are refused by the scan; "no scalar form" programs are refused
by engine="fused"; "vanished" differences do not occur when the expression runs alone.
"""
