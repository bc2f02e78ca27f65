// What a report may do in a webview: nothing but show itself, in the colours of the editor.

const POLICY = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`;

/** A page with the policy before anything it could forbid. A page's own policy can only forbid more. */
export function guarded(html: string): string {
  const head = /^\s*(<!doctype[^>]*>)?\s*(<html[^>]*>)?\s*<head[^>]*>/i.exec(html)?.[0];
  return head ? head + POLICY + html.slice(head.length) : `<!doctype html><head>${POLICY}</head>${html}`;
}

const COLOURS = `<style>:root {
  --ground: var(--vscode-editor-background); --text: var(--vscode-editor-foreground);
  --quiet: var(--vscode-descriptionForeground); --line: var(--vscode-panel-border, var(--vscode-contrastBorder));
  --soft: var(--vscode-textCodeBlock-background); }
body { font-family: var(--vscode-font-family); }
pre, code { font-family: var(--vscode-editor-font-family) !important; }
.beside code { background: none; color: inherit; padding: 0; }</style>`;

/** A page in the colours and fonts of the editor's theme, which stand behind its own. */
export function themed(html: string): string {
  return html.replace(/<\/head>/i, `${COLOURS}</head>`);
}

/** A page whose dark colours count where the editor's theme is dark: a webview asks the system, not the editor. */
export function coloured(html: string, dark: boolean): string {
  return html.replaceAll('@media (prefers-color-scheme: dark)', dark ? '@media all' : '@media not all');
}
