// What the status bar says, and what is read of the answer of `orbit.info`.

export interface Info {
  version: string | undefined;
  /** One sentence for each rented GPU. */
  rented: string[];
}

export type State = 'starting' | 'running' | 'stopped';

export interface Shown {
  text: string;
  tooltip: string;
}

/** `status` of `orbit/panel`; the icon is the name of a codicon. */
export interface Said extends Shown {
  icon: string;
}

/** The parts of `orbit.info` that are shown; what is absent or of another form, as from an older server, is left out. */
export function readInfo(answer: unknown): Info {
  const info = object(answer);
  return {
    version: string(info['orbit-lsp']),
    rented: Array.isArray(info.rented) ? info.rented.filter((one) => typeof one === 'string') : [],
  };
}

/** The server says it, once it has answered `orbit/panel`. */
export function show(state: State, said: Said | undefined): Shown {
  if (state === 'stopped') return { text: '$(error) orbit-lsp', tooltip: 'orbit-lsp is not running' };
  if (state === 'starting' || !said) return { text: '$(sync~spin) orbit-lsp', tooltip: 'orbit-lsp is starting' };
  return { text: `$(${said.icon}) ${said.text}`, tooltip: said.tooltip };
}

/** What runs, from the token of its progress, `orbit/run saxpy r3`; undefined for a compile, which nobody started. */
export function runOf(token: string | number): string | undefined {
  return /^orbit\/((?!compile ).+) \S+$/.exec(String(token))?.[1];
}

function object(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

function string(value: unknown): string | undefined {
  return typeof value === 'string' && value ? value : undefined;
}
