// In place of the Python extension, which is in no registry that npm reads: the part of its API that tells the selected
// interpreter, which is the one that the setting `test.python` names.
const vscode = require('vscode');

exports.activate = () => ({
  environments: {
    getActiveEnvironmentPath: () => vscode.workspace.getConfiguration('test').get('python'),
    resolveEnvironment: async (path) => ({ executable: { uri: path ? vscode.Uri.file(path) : undefined } }),
    onDidChangeActiveEnvironmentPath: new vscode.EventEmitter().event,
  },
});
