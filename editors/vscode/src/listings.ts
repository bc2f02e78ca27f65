// What the compiler made of a kernel, beside its source: the instructions of the line at the cursor are marked.

import * as vscode from 'vscode';
import { rows } from './instructions';

/** Of the manifest: NVIDIA's machine code, not the style sheets whose ending it has. */
const SASS = 'orbit-sass';

export class Listings implements vscode.Disposable {
  private readonly mark = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor('editor.selectionHighlightBackground'),
  });
  private readonly listening = [
    vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => this.follow(textEditor)),
    vscode.window.onDidChangeVisibleTextEditors(() => this.follow(vscode.window.activeTextEditor)),
    // it is written anew at each save of a CUDA file
    vscode.workspace.onDidChangeTextDocument(() => this.follow(vscode.window.activeTextEditor)),
  ];

  /** Shows a text of the server's beside the one with the cursor, which stays there. */
  async show(text: vscode.Uri, selection: vscode.Range | undefined): Promise<void> {
    const viewColumn = vscode.ViewColumn.Beside;
    await vscode.window.showTextDocument(text, { viewColumn, preserveFocus: true, ...(selection && { selection }) });
    this.follow(vscode.window.activeTextEditor);
  }

  private follow(source: vscode.TextEditor | undefined): void {
    const listings = vscode.window.visibleTextEditors.filter(({ document }) => document.languageId === SASS);
    if (!source || source.document.uri.scheme === 'output' || listings.includes(source)) return;
    const { text, lineNumber } = source.document.lineAt(source.selection.active);
    for (const listing of listings) {
      const lines = listing.document.getText().split(/\r?\n/);
      const marked = rows(lines, source.document.uri.path, lineNumber + 1, text).map((row) =>
        listing.document.lineAt(row),
      );
      listing.setDecorations(
        this.mark,
        marked.map(({ range }) => range),
      );
      const seen = marked.some(({ range }) => listing.visibleRanges.some((one) => one.contains(range)));
      if (marked[0] && !seen) listing.revealRange(marked[0].range, vscode.TextEditorRevealType.AtTop);
    }
  }

  dispose(): void {
    vscode.Disposable.from(this.mark, ...this.listening).dispose();
  }
}
