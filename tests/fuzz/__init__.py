"""A fuzzer: random torques, controllers and ``save=`` functions, run by the scan and by the kernel.

    python -m tests.fuzz --programs 1000 --rollouts 300 --seed 0

draws 1000 programs of twenty expressions and 300 whole rollouts, one after the other, prints each
difference with a reduced program that runs on its own, and at last one line of counts. A seed
names a program: seed 17 is the same expressions and inputs everywhere.

A program is a rollout of two steps by Euler's method (``programs``). Its expressions come from a
grammar of jnp and lax operations (``grammar``), and stand in what is saved, in d aux/dt, and,
bounded, in the torque. Their arguments are inputs that change from step to step, among them NaN,
infinities, the least and the largest integers, for 72 bodies at once. One program in five is
differentiated too, which costs four times as much; in it each body has the gradient of one
expression; another one in five runs for one body alone too. One in ten has numbers below the
normal ones, one in twenty operations without a scalar
form, where engine="auto" must give what the scan gives. Whole rollouts (``rollouts``) draw the
scheme, a controller with memory of several dtypes, inputs, the sampling, what is saved, the
checkpoints and the batch.

Both engines run in a child process (``child``, ``running``), so a crash or a hang is a finding like
a difference. The scan is the oracle, in four steps that each let less through:

1. Integers and booleans agree by their bits, NaN and infinities by their places, floats to 32 ulp;
   one that is small beside the median of its output to 3 ulp of that median.
2. The inputs moved by up to eight ulp move the scan as far: "accepted".
3. Other roundings of every operation (``oracle``), or the values that XLA gives some of them at
   will (``liberties``), move the scan's program as far: "accepted".
4. The difference goes away where the subnormal numbers of the program are zero: "subnormal".

What is left is a difference. Then outputs are bisected, and the tree of the expression shrinks
(``reducing``). ``--planted NAME`` runs a wrong engine (``planted``), to see whether it is found.

The other counts: "invalid" programs are refused by the scan; "no scalar form" says engine="fused"
by name; "vanished" differences are not there when the expression runs without the others.
"""
