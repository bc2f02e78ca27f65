-- What vim.lsp.config('orbit', {…}) of yours is laid over.
local config = {
  cmd = { 'orbit-lsp' },
  filetypes = { 'cuda', 'python', 'c', 'cpp' },
  root_markers = { 'compile_commands.json', 'pyproject.toml', '.git' },
  root_dir = function(buf, start)
    if require('orbit.headers').is_ours(buf) and not require('orbit.server').has_begun(buf) then
      start(require('orbit.headers').root(buf, vim.lsp.config.orbit.root_markers or {}))
    end
  end,
  handlers = {
    ['textDocument/inlayHint'] = function(...)
      require('orbit').draw_hints(...)
    end,
    ['orbit/panelChanged'] = function(_, _, context)
      require('orbit.status').ask(vim.lsp.get_client_by_id(context.client_id))
      require('orbit.listing').reread() -- it comes after each compilation
    end,
    ['textDocument/publishDiagnostics'] = function(...)
      require('orbit.doubled').publish(...)
    end,
    ['window/showMessage'] = function(...)
      return require('orbit.message').show(...)
    end,
    ['window/showDocument'] = function(fault, params, context)
      if params.takeFocus == false and not params.external then
        return require('orbit.listing').show(params)
      end
      return vim.lsp.handlers['window/showDocument'](fault, params, context)
    end,
    ['orbit/output'] = function(_, params)
      require('orbit.output').append(params.text)
    end,
    ['orbit/debug'] = function(_, params)
      require('orbit.debugger').attach(params)
    end,
  },
  capabilities = { experimental = { orbit = { output = true, panel = true, debug = true } } },
  on_exit = function(...)
    require('orbit.server').ended(...)
  end,
}
if vim.fn.has('nvim-0.12') == 0 then
  -- 0.11 draws lenses but knows no request to draw them anew
  config.capabilities.workspace = { codeLens = { refreshSupport = true } }
  config.handlers['workspace/codeLens/refresh'] = function(_, _, context)
    require('orbit').fetch_lenses(context.client_id)
    return vim.NIL
  end
end
return config
