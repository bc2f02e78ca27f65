// What the status bar says, from the answer of `orbit.info` and the runs under way.

export interface Info {
  version: string | undefined;
  runner: string | undefined;
  gpu: string | undefined;
  /** Whether the server knows this machine's GPUs yet. */
  looked: boolean;
  /** One sentence for each rented GPU. */
  rented: string[];
  /** What a picker shows -> the GPU that it stands for. */
  gpus: Record<string, string>;
  /** The GPU that runs on Modal get. */
  chosen: string | undefined;
}

export type State = 'starting' | 'running' | 'stopped';

export interface Shown {
  text: string;
  tooltip: string;
}

/** The parts of `orbit.info` that are shown; what is absent or of another form, as from an older server, is left out. */
export function readInfo(answer: unknown): Info {
  const info = object(answer);
  const runner = object(info.runner);
  return {
    version: string(info['orbit-lsp']),
    runner: string(runner.name),
    gpu: string(runner.gpu),
    looked: Array.isArray(runner.devices),
    rented: Array.isArray(info.rented) ? info.rented.filter((one) => typeof one === 'string') : [],
    gpus: Object.fromEntries(
      Object.entries(object(info.gpus)).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
    ),
    chosen: string(object(info.settings).gpu),
  };
}

export function show(state: State, info: Info | undefined, running: readonly string[]): Shown {
  if (state === 'stopped') return { text: '$(error) orbit-lsp', tooltip: 'orbit-lsp is not running' };
  if (state === 'starting' || !info) return { text: '$(sync~spin) orbit-lsp', tooltip: 'orbit-lsp is starting' };
  const gpu = info.gpu?.replace(/^NVIDIA /, '') ?? (info.looked ? 'no GPU' : 'orbit-lsp');
  const place = info.gpu && info.runner === 'modal' ? `${gpu} · Modal` : gpu;
  const icon = running.length > 0 ? '$(sync~spin)' : info.rented.length > 0 ? '$(flame)' : '$(circuit-board)';
  const count = running.length > 0 ? ` · ${running.length} running` : '';
  return {
    text: `${icon} ${place}${count}`,
    tooltip: [`orbit-lsp ${info.version ?? ''}`.trim(), ...whereabouts(info), ...running, ...info.rented].join('\n'),
  };
}

function whereabouts({ gpu, runner, looked }: Info): string[] {
  if (gpu) return [`${gpu}, ${runner === 'modal' ? 'rented from Modal' : "this machine's own"}`];
  return looked ? ['no GPU found'] : [];
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
