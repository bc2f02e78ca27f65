// The server's diagnostics without what clangd says too, judged anew whenever either of them speaks.

import * as vscode from 'vscode';
import { isDouble, type Said } from './doubles';

type Publish = (uri: vscode.Uri, diagnostics: vscode.Diagnostic[]) => void;

export class Diagnostics implements vscode.Disposable {
  private readonly published = new Map<
    string,
    { all: vscode.Diagnostic[]; shown: vscode.Diagnostic[]; next: Publish }
  >();
  private readonly listening = vscode.Disposable.from(
    vscode.languages.onDidChangeDiagnostics(({ uris }) => {
      for (const uri of uris) this.judge(uri);
    }),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (!change.affectsConfiguration('orbit.doubled_errors')) return;
      for (const uri of this.published.keys()) this.judge(vscode.Uri.parse(uri, true));
    }),
  );

  /** What the server published of a file, in place of what it published before. */
  publish(uri: vscode.Uri, all: vscode.Diagnostic[], next: Publish): void {
    const shown = singles(uri, all);
    this.published.set(uri.toString(), { all, shown, next });
    next(uri, shown);
  }

  private judge(uri: vscode.Uri): void {
    const file = this.published.get(uri.toString());
    if (!file) return;
    const shown = singles(uri, file.all);
    if (shown.length === file.shown.length && shown.every((one, index) => one === file.shown[index])) return;
    file.shown = shown;
    file.next(uri, shown);
  }

  dispose(): void {
    this.listening.dispose();
  }
}

function singles(uri: vscode.Uri, all: vscode.Diagnostic[]): vscode.Diagnostic[] {
  if (vscode.workspace.getConfiguration('orbit').get('doubled_errors') === 'show') return all;
  const others = vscode.languages.getDiagnostics(uri).map(said);
  return all.filter((one) => !isDouble(said(one), others));
}

function said({ range, source, severity, message }: vscode.Diagnostic): Said {
  return { line: range.start.line, source, error: severity === vscode.DiagnosticSeverity.Error, message };
}
