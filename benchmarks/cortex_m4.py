"""A step in C on an emulated Cortex-M4F: its results, instructions, cycles and stack.

Unicorn (the package unicorn) executes the instructions of the processor and counts how often each
branch is taken. It has no clock. The cycles follow from the tables of Arm's Cortex-M4 Technical
Reference Manual, r0p1 (DDI 0439): 3-1 for integers, 7-1 for floats. Memory is without wait states.
The manual leaves two numbers open, so there are a low and a high estimate: a taken branch refills
the pipeline in 1 to 3 cycles, and a load takes 1 cycle where it overlaps with its neighbours, else
2. A result of a floating-point operation that the next instruction reads costs one cycle more.
Divisions of integers take 2 to 12 cycles.

benchmarks/onboard.py --cycles prints what follows for a scheme, filters and a policy.
"""

import re
import subprocess
from collections import Counter

import numpy as np

OPTIONS = [
    "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2", "-std=c99",
    "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off",
]  # fmt: skip
LOOP = """
void many(char *memory, const char *samples, char *results, const int32_t *sizes);

void many(char *memory, const char *samples, char *results, const int32_t *sizes)
{{
    for (int32_t k = 0; k < sizes[0]; k++) {{
        {name}((void *)memory, (const void *)(samples + k * sizes[1]), (void *)memory,
               (void *)(results + k * sizes[2]));
    }}
}}
"""
# For doubles: S. Boldo and G. Melquiond, IEEE Transactions on Computers 57, 2008, 462 (rounding to
# odd); without overflow and denormal numbers. fma of newlib rounds the product.
FMA = """
static double error_of_sum(double x, double y, double sum)
{
    const double rounded = sum - x;
    return (x - (sum - rounded)) + (y - rounded);
}

static double to_odd(double x, double y)
{
    union {
        double x;
        int64_t bits;
    } sum;
    sum.x = x + y;
    const double error = error_of_sum(x, y, sum.x);
    if (error != 0.0 && (sum.bits & 1) == 0) {
        sum.bits += (error > 0.0) == (sum.x > 0.0) ? 1 : -1;
    }
    return sum.x;
}

double fma(double x, double y, double z)
{
    const double factor = 134217729.0, product = x * y;
    const double a = x * factor - (x * factor - x), b = y * factor - (y * factor - y);
    const double low = (x - a) * (y - b) - (((product - a * b) - (x - a) * b) - a * (y - b));
    const double inner = z + low, sum = product + inner;
    return sum + to_odd(error_of_sum(z, low, inner), error_of_sum(product, inner, sum));
}
"""
CODE, DATA, STACK, SPACE, TOP = 0x10000, 0x400000, 0x300000, 0x1000000, 0x380000  # addresses
END, UNUSED = 0x1000, 0xA5  # where the loop returns to; the bytes of unused stack
FLOAT = {
    "vdiv": 14, "vsqrt": 14, "vfma": 3, "vfms": 3, "vfnma": 3, "vfnms": 3, "vmla": 3, "vmls": 3,
    "vnmla": 3, "vnmls": 3,
}  # fmt: skip
LATE = {*FLOAT, "vadd", "vsub", "vmul", "vnmul", "vcvt"}  # the next instruction waits for these


def built(text, name, folder):
    """Return the linked code of a step with its loop, the address of the loop, and a listing."""
    (folder / "m4.c").write_text(text + LOOP.format(name=name))
    link = ["-nostartfiles", "--specs=nosys.specs", f"-Wl,-e,many,-Ttext={CODE:#x}", "-lm"]
    run = {"cwd": folder, "check": True, "capture_output": True, "text": True}
    subprocess.run(["arm-none-eabi-gcc", *OPTIONS, "m4.c", *link, "-o", "m4.elf"], **run)
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", "m4.elf", "m4.bin"], **run)
    names = subprocess.run(["arm-none-eabi-nm", "m4.elf"], **run).stdout
    listing = subprocess.run(["arm-none-eabi-objdump", "-d", "m4.elf"], **run).stdout
    entry = int(next(x.split()[0] for x in names.splitlines() if x.endswith(" T many")), 16)
    return (folder / "m4.bin").read_bytes(), entry, listing


def executed(code, entry, memory, samples, result):
    """Run the loop over the samples. -> memory and results, counts of branches, bytes of stack.

    Memory, samples and results are arrays of structs; ``result`` is the dtype of the last. A branch
    is from the block at one address, of so many bytes, to the block at another address.
    """
    import unicorn as uc  # pyright: ignore[reportMissingImports]
    from unicorn import arm_const  # pyright: ignore[reportMissingImports]

    machine = uc.Uc(uc.UC_ARCH_ARM, uc.UC_MODE_THUMB | uc.UC_MODE_MCLASS)
    machine.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M4)
    machine.mem_map(0, SPACE)
    count, aligned = len(samples), lambda x: -(-x // 64) * 64
    places = [DATA, DATA + aligned(memory.nbytes)]
    places.append(places[1] + aligned(samples.nbytes))
    places.append(places[2] + aligned(count * result.itemsize))
    sizes = np.array([count, samples.itemsize, result.itemsize], np.int32)
    contents = memory.tobytes(), samples.tobytes(), b"", sizes.tobytes()
    for place, content, register in zip(places, contents, range(4), strict=True):
        machine.mem_write(place, content)
        machine.reg_write(arm_const.UC_ARM_REG_R0 + register, place)
    machine.mem_write(CODE, code)
    machine.mem_write(STACK, bytes([UNUSED]) * (TOP - STACK))
    machine.reg_write(arm_const.UC_ARM_REG_SP, TOP)
    machine.reg_write(arm_const.UC_ARM_REG_LR, END | 1)
    branches, last = Counter(), [(0, 0)]

    def block(_, address, size, __):
        branches[(*last[0], address)] += 1
        last[0] = address, size

    machine.hook_add(uc.UC_HOOK_BLOCK, block)
    machine.emu_start(entry | 1, END)
    branches[(*last[0], END)] += 1
    del branches[0, 0, entry]
    stack = np.frombuffer(machine.mem_read(STACK, TOP - STACK), np.uint8)
    memory = np.frombuffer(machine.mem_read(places[0], memory.nbytes), memory.dtype)
    results = np.frombuffer(machine.mem_read(places[2], count * result.itemsize), result)
    return memory, results, branches, len(stack) - int(np.argmax(stack != UNUSED))


def cost(branches, listing):
    """Return the instructions that ran, and the least and the most cycles they take."""
    lines = re.findall(r"^ +([0-9a-f]+):\t([0-9a-f ]+?) *\t(\S+)(?:\t([^@;\n]*))?", listing, re.M)
    code = {
        int(at, 16): (len(word.replace(" ", "")) // 2, op, args) for at, word, op, args in lines
    }
    total, low, high = 0, 0, 0
    for (address, size, target), times in branches.items():
        end, at, before = address + size, address, ""
        while at < end:
            bytes_, op, args = code[at]
            following = code.get(at + bytes_, (0, "", ""))[1:]
            jumps = at + bytes_ >= end and target != end
            few, many = timing(op, args, before, following, jumps)
            total, low, high = total + times, low + times * few, high + times * many
            at, before = at + bytes_, op
    return total, low, high


def timing(op, args, before, following, jumps):
    """Return a low and a high estimate of the cycles of an instruction between its neighbours."""
    stem = _plain(op)
    if "{" in args:  # push, pop, vldm, ...
        few = many = 1 + _registers(args[args.index("{") :])
    elif stem.startswith(("ldrd", "strd")):
        few = many = 3
    elif stem.startswith(("ldr", "vldr", "str", "vstr")):
        double = stem.startswith("v") and args.startswith("d")
        overlaps = "str" in stem or re.match("v?(ldr|str)", before) is not None
        few, many = (1 if overlaps else 2) + double, 2 + double
    elif stem.startswith(("sdiv", "udiv")):
        few, many = 2, 12
    else:
        few = many = {**FLOAT, "mla": 2, "mls": 2, "tbb": 2, "tbh": 2}.get(stem, 1)
    waits = stem in LATE and args.split(",")[0].strip() in _needed(*following)
    return few + waits + (1 if jumps else 0), many + waits + (3 if jumps else 0)


def _plain(op):
    """Return the operation without its condition and its types."""
    stem = op.split(".")[0]
    return (
        stem if stem in FLOAT else re.sub("(?<=..)(eq|ne|[gl][te]|mi|pl|hi|ls|[vc][sc])$", "", stem)
    )


def _needed(op, args):
    """Return the registers that an instruction reads."""
    cells = [x.strip(" {}[]") for x in args.split(",")]
    stem = _plain(op)
    reads_first = stem.startswith(("vfm", "vfn", "vml", "vnml", "vst", "vcmp"))
    return cells if reads_first else cells[1:]


def _registers(text):
    """Return how many 32-bit registers a list such as {r4-r7, lr} or {d8-d9} has."""
    count = 0
    for part in text.strip("{} \t").split(","):
        first, _, last = part.strip().partition("-")
        number = [int(x[1:]) if x[1:].isdigit() else 0 for x in (first, last or first)]
        count += (number[1] - number[0] + 1) * (2 if first.startswith("d") else 1)
    return count
