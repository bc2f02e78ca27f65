// What a report may do in a webview: nothing but show itself.

const POLICY = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`;

/** A page with the policy before anything it could forbid. A page's own policy can only forbid more. */
export function guarded(html: string): string {
  const head = /^\s*(<!doctype[^>]*>)?\s*(<html[^>]*>)?\s*<head[^>]*>/i.exec(html)?.[0];
  return head ? head + POLICY + html.slice(head.length) : `<!doctype html><head>${POLICY}</head>${html}`;
}
