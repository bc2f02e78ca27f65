// Which of nvcc's errors clangd says too, so that a line does not show them twice.

export interface Said {
  line: number;
  source: string | undefined;
  error: boolean;
  message: string;
}

/** Whether `own` is an error of nvcc's and `others` has one of clangd's on its line, about the same quoted names. */
export function isDouble(own: Said, others: readonly Said[]): boolean {
  if (own.source !== 'nvcc' || !own.error) return false;
  const names = quoted(own.message);
  return others.some((other) => {
    if (other.line !== own.line || !other.error || !other.source?.startsWith('clang')) return false;
    const theirs = quoted(other.message);
    return names.size + theirs.size === 0 || [...names].some((name) => theirs.has(name));
  });
}

function quoted(message: string): Set<string> {
  return new Set([...message.matchAll(/'([^']+)'|"([^"]+)"/g)].map((found) => found[1] ?? found[2] ?? ''));
}
