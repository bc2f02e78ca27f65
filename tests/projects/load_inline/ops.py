from pathlib import Path

from torch.utils.cpp_extension import load_inline

HERE = Path(__file__).parent
ops = load_inline("ops", cpp_sources="void run();", cuda_sources=(HERE / "kernels" / "ops.cu").read_text())
