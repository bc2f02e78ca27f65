// The view Orbit of the activity bar: trees of items as the server's `orbit/panel` has them.

import * as vscode from 'vscode';
import type { Said } from './status';

export interface Action {
  command: string;
  arguments?: unknown[];
}

export interface Item {
  label: string;
  description?: string;
  tooltip?: string;
  icon?: string;
  uri?: string;
  line?: number;
  command?: Action;
  actions?: Record<string, Action>;
  children?: Item[];
}

export interface Choice {
  label: string;
  gpu: string;
  now: boolean;
}

export interface Panel {
  status: Said;
  runs: Item[];
  gpus: Item[];
  history: Item[];
  choices: Choice[];
  done: string[];
}

export const TREES = ['runs', 'gpus', 'history'] as const;

export class Tree implements vscode.TreeDataProvider<Item> {
  private items: Item[] = [];
  private readonly changes = new vscode.EventEmitter<undefined>();
  readonly onDidChangeTreeData = this.changes.event;

  show(items: Item[]): void {
    if (JSON.stringify(items) === JSON.stringify(this.items)) return;
    this.items = items;
    this.changes.fire(undefined);
  }

  getChildren(item?: Item): Item[] {
    return item ? (item.children ?? []) : this.items;
  }

  getTreeItem(item: Item): vscode.TreeItem {
    const { None, Collapsed } = vscode.TreeItemCollapsibleState;
    const shown = new vscode.TreeItem(item.label, item.children?.length ? Collapsed : None);
    if (item.description !== undefined) shown.description = item.description;
    shown.tooltip = item.tooltip ?? `${item.label}\n${item.description ?? ''}`.trim();
    if (item.icon !== undefined) shown.iconPath = new vscode.ThemeIcon(item.icon, colour(item.icon));
    shown.contextValue = Object.keys(item.actions ?? {}).join(' ');
    const command = item.command ?? (item.uri === undefined ? undefined : place(item.uri, item.line ?? 0));
    if (command) shown.command = { title: item.label, ...command };
    return shown;
  }
}

/** The theme's own colours of what went well and what did not; the icons differ without them. */
function colour(icon: string): vscode.ThemeColor | undefined {
  const names: Record<string, string> = {
    pass: 'testing.iconPassed',
    'pass-filled': 'testing.iconPassed',
    error: 'testing.iconFailed',
    warning: 'list.warningForeground',
    flame: 'charts.orange',
  };
  return names[icon] === undefined ? undefined : new vscode.ThemeColor(names[icon]);
}

/** Where a run's kernel is. */
function place(uri: string, line: number): Action {
  const selection = new vscode.Range(line, 0, line, 0);
  return { command: 'vscode.open', arguments: [vscode.Uri.parse(uri, true), { selection }] };
}

/** The buttons at an item: their names are those of the server's actions. */
export function buttons(names: readonly string[]): vscode.Disposable[] {
  return names.map((name) =>
    vscode.commands.registerCommand(`orbit.item.${name}`, (item: Item) => {
      const action = item.actions?.[name];
      return action && vscode.commands.executeCommand(action.command, ...(action.arguments ?? []));
    }),
  );
}
