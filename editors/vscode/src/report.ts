// A report that the server asks to show, as a panel beside the text.

import * as path from 'node:path';
import * as vscode from 'vscode';
import { guarded } from './policy';

export class Reports implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;

  /** Shows a page of the server's in the one panel there is. Rejects where the file cannot be read. */
  async show(page: vscode.Uri): Promise<void> {
    const html = guarded(new TextDecoder().decode(await vscode.workspace.fs.readFile(page)));
    if (!this.panel) {
      this.panel = vscode.window.createWebviewPanel(
        'orbit.report',
        'Report',
        { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
        {
          enableScripts: false,
          enableForms: false,
          localResourceRoots: [],
        },
      );
      this.panel.onDidDispose(() => {
        this.panel = undefined;
      });
    }
    this.panel.title = path.basename(page.fsPath).replace(/-\d{8}-\d{6}\.html$/, '');
    this.panel.webview.html = html;
    this.panel.reveal(undefined, true);
  }

  dispose(): void {
    this.panel?.dispose();
  }
}
