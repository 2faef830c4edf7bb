import os
import statistics
import time
import traceback
import warnings

T0 = time.time()
warnings.simplefilter("ignore")
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.utils import run_and_get_code

import autotune
import autotune.torch
from autotune.torch import choosing, fusing

OUT = os.environ.get("OUT", "/tmp") + "/inductor"; os.makedirs(OUT, exist_ok=True)
LIMIT = 84
def left(): return LIMIT - (time.time() - T0)
def say(*a): print(*a, flush=True)
from torch._inductor.codegen import common

say(torch.__version__, torch.cuda.get_device_name(), "backend passes", hasattr(common, "custom_backend_passes"),
    "override", type(torch._inductor.config._config["post_grad_custom_post_pass"].user_override).__name__, f"import {time.time()-T0:.1f}s")
H, I, KV, D = 4096, 14336, 1024, 128
class Block(nn.Module):
    def __init__(s):
        super().__init__()
        L = lambda i, o: nn.Linear(i, o, bias=False)
        s.q, s.k, s.v, s.o = L(H, H), L(H, KV), L(H, KV), L(H, H)
        s.g, s.u, s.d = L(H, I), L(H, I), L(I, H)
        s.n1, s.n2 = nn.RMSNorm(H), nn.RMSNorm(H)
    def forward(s, x):
        b, t, _ = x.shape
        y = s.n1(x)
        q = s.q(y).view(b, t, H // D, D).transpose(1, 2)
        k = s.k(y).view(b, t, KV // D, D).transpose(1, 2).repeat_interleave(H // KV, 1)
        v = s.v(y).view(b, t, KV // D, D).transpose(1, 2).repeat_interleave(H // KV, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, H)
        x = x + s.o(a)
        y = s.n2(x)
        return x + s.d(F.silu(s.g(y)) * s.u(y))
with torch.device("cuda"):
    torch.manual_seed(0)
    model = Block().to(torch.bfloat16).requires_grad_(False)
def timed(run, x):
    for _ in range(4): run(x)
    torch.cuda.synchronize()
    ts = []
    for _ in range(25):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(4): run(x)
        b.record(); b.synchronize(); ts.append(a.elapsed_time(b) * 250)
    return statistics.median(ts)
def go(x, policy=None, on=True, mode="reduce-overhead", stored=None):
    torch._dynamo.reset()
    keep = fusing._stored
    if stored is not None: fusing._stored = stored
    sw = autotune.torch.inductor(policy) if on else None
    try:
        t = time.time()
        c = torch.compile(model, mode=mode, fullgraph=True)
        with torch.no_grad():
            y = c(x); torch.cuda.synchronize(); s = time.time() - t
            y = y.clone()
            us = timed(c, x)
        return us, s, y, sw
    finally:
        fusing._stored = keep
        if sw: sw.close()
def small():
    """forced choice: forward, backward in its thread, dynamic."""
    keep = choosing.Chooser.choice, choosing.Chooser.race
    choosing.Chooser.choice = lambda s, p, any_m: choosing.ProductChoice(p, 1.0, 2.0)
    choosing.Chooser.race = lambda s, p: None
    try:
        lin1, lin2 = nn.Linear(256, 512, device="cuda", dtype=torch.bfloat16), nn.Linear(512, 256, device="cuda", dtype=torch.bfloat16)
        f = lambda x: lin2(F.gelu(lin1(x))) + x
        with autotune.torch.inductor() as sw:
            torch._dynamo.reset()
            for n in (32, 48, 64, 7):
                x = torch.randn(2, n, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                g = torch.compile(f, fullgraph=True)
                y = g(x); y.float().sum().backward()
                gx, gw = x.grad.clone(), lin1.weight.grad.clone(); x.grad = None; lin1.weight.grad = None; lin2.weight.grad = None
                z = f(x); z.float().sum().backward()
                say("train", n, "err", (y-z).abs().max().item(), (gx-x.grad).abs().max().item(), ((gw-lin1.weight.grad).norm()/gw.norm()).item())
                x.grad = None; lin1.weight.grad = None
            say("problems", [str(c.problem) for c in sw.rows])
            torch._dynamo.reset()
            with torch.no_grad():
                y, code = run_and_get_code(torch.compile(f, fullgraph=True), x)
                open(OUT + "/small.py", "w").write("\n".join(code))
                # host cost
            w = [torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) for _ in range(40)]
            def chain(x, *w):
                for m in w: x = x @ m
                return x
            xx = torch.randn(16, 256, device="cuda", dtype=torch.bfloat16)
            def host():
                with torch.no_grad():
                    c = torch.compile(chain, fullgraph=True); c(xx, *w); c(xx, *w); best = 1e9
                    for _ in range(30):
                        torch.cuda.synchronize(); t = time.perf_counter(); c(xx, *w); best = min(best, time.perf_counter() - t)
                return best / 40 * 1e6
            torch._dynamo.reset(); ours = host()
        torch._dynamo.reset(); plain = host()
        say(f"host us a product: ours {ours:.2f}, plain {plain:.2f}")
    finally:
        choosing.Chooser.choice, choosing.Chooser.race = keep
try: small()
except Exception: traceback.print_exc(limit=-4)
say(f"-- {time.time()-T0:.0f}s")
def rows(m):
    x = torch.randn(1, m, H, device="cuda", dtype=torch.bfloat16)
    p, ps, yp, _ = go(x, on=False)
    o, os_, yo, sw = go(x)
    err = ((yo - yp).float().norm() / yp.float().norm()).item()
    line = f"rows {m}: plain {p:.1f} us ({ps:.1f}s) ours {o:.1f} ({os_:.1f}s) x{p/o:.3f} err {err:.1e}"
    open(OUT + f"/rows{m}.txt", "w").write(str(sw))
    if left() > 12 and torch.cuda.get_device_capability() >= (9, 0):
        d, ds, *_ = go(x, autotune.Policy(tune="quick", cold=True, dependent=True))
        line += f" | dependent {d:.1f} x{p/d:.3f} ({ds:.1f}s)"
    if left() > 12:
        d, ds, *_ = go(x, autotune.Policy(tune="quick", cold=False))
        line += f" | hot {d:.1f} x{p/d:.3f}"
    if left() > 12:
        d, ds, *_ = go(x, stored=lambda node: True)
        line += f" | all fused {d:.1f} x{p/d:.3f}"
    if left() > 8:
        d, ds, *_ = go(x, on=False)
        line += f" | plain again {d:.1f}"
    say(line); say(sw)
for m in (16, 2048, 128, 1):
    if left() > 20:
        try: rows(m)
        except Exception: traceback.print_exc(limit=-6)
    say(f"-- {time.time()-T0:.0f}s")
