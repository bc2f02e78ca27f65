// clangd beside orbit-lsp. Its own extension is in no registry that npm reads; this is what matters of it: the real
// clangd, through the same client library, for the same languages.
import { LanguageClient } from 'vscode-languageclient/node';
import * as vscode from 'vscode';

let client;

export function activate() {
  const command = vscode.workspace.getConfiguration('beside').get('clangd');
  client = new LanguageClient(
    'clangd',
    'clangd',
    { command, args: ['--background-index=false'] },
    {
      documentSelector: ['c', 'cpp', 'cuda-cpp'].map((language) => ({
        scheme: 'file',
        language,
      })),
    },
  );
  return client.start();
}

export function deactivate() {
  return client?.stop();
}
