// *Debug* above a Triton kernel: VS Code's own debugger stops at a breakpoint in the kernel and shows its tensors. Nothing is recorded:
// Triton's interpreter needs no GPU.

export const files = {
  'double.py': `import triton
import triton.language as tl


# orbit: n = 100; x = ones(n); out = empty(n)
# orbit: launch double[(2,)](x, out, n, BLOCK=64)
@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x_ptr + at, mask=mask)
    tl.store(out_ptr + at, 2 * value, mask=mask)
`,
};
const STORE = 12;

export async function debug({ window, say, picture }) {
  await window.see(window.lens('Debug'));
  await window.goTo(STORE);
  await window.keyboard.press('F9');
  const began = Date.now();
  await window.page.click(window.lens('Debug'));
  await window.see('text=Paused on breakpoint');
  say(`a click on Debug stopped in the kernel after ${Date.now() - began} ms`);
  await window.see('.debug-call-stack .monaco-list-row:has-text("double")');
  await window.page.click('.debug-variables .monaco-list-row:has-text("Locals")');
  await window.see('.debug-variables .monaco-list-row:has-text("value"):has-text("array([1., 1.")');
  await window.see('.debug-variables .monaco-list-row:has-text("BLOCK"):has-text("64")');
  await picture();
  await window.page.click('.debug-toolbar .codicon-debug-continue');
  await window.see(window.lens('Debug'));
}
