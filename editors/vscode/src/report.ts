// A report that the server asks to show, as a panel beside the text.

import * as path from 'node:path';
import * as vscode from 'vscode';
import { coloured, guarded, themed } from './policy';

export class Reports implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private html = '';
  private readonly listening = vscode.window.onDidChangeActiveColorTheme(() => this.draw());

  /** Shows a page of the server's in the one panel there is. Rejects where the file cannot be read. */
  async show(page: vscode.Uri): Promise<void> {
    this.html = themed(guarded(new TextDecoder().decode(await vscode.workspace.fs.readFile(page))));
    const before = this.panel;
    this.panel ??= this.create();
    this.panel.title = path.basename(page.fsPath).replace(/-\d{8}-\d{6}\.html$/, '');
    this.draw();
    before?.reveal(undefined, true);
  }

  private draw(): void {
    if (!this.panel) return;
    const { kind } = vscode.window.activeColorTheme;
    const dark = kind === vscode.ColorThemeKind.Dark || kind === vscode.ColorThemeKind.HighContrast;
    this.panel.webview.html = coloured(this.html, dark);
  }

  private create(): vscode.WebviewPanel {
    const panel = vscode.window.createWebviewPanel(
      'orbit.report',
      'Report',
      { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
      { enableScripts: false, enableForms: false, localResourceRoots: [] },
    );
    panel.onDidDispose(() => {
      this.panel = undefined;
    });
    return panel;
  }

  dispose(): void {
    this.listening.dispose();
    this.panel?.dispose();
  }
}
