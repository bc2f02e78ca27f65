if vim.g.loaded_orbit then
  return
end
vim.g.loaded_orbit = true
if vim.fn.has('nvim-0.11') == 0 then
  vim.notify('orbit: Neovim 0.11 or newer is needed', vim.log.levels.ERROR)
  return
end

vim.api.nvim_create_user_command('Orbit', function(call)
  require('orbit.command').run(call.fargs)
end, {
  nargs = '*',
  desc = 'Run and measure GPU kernels',
  complete = function(start, line)
    return require('orbit.command').complete(start, line)
  end,
})

-- of NVIDIA's machine code, not of the style sheets whose ending it has
vim.filetype.add({ pattern = { ['.*/orbit%-lsp/.*%.sass'] = 'orbit-sass' } })

local group = vim.api.nvim_create_augroup('orbit', {})
vim.api.nvim_create_autocmd('LspAttach', {
  group = group,
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == 'orbit' then
      require('orbit').attach(client, event.buf)
      if vim.fn.has('nvim-0.12') == 0 then
        require('orbit.names').attached(event.buf)
      end
    end
  end,
})
vim.api.nvim_create_autocmd('LspProgress', {
  group = group,
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == 'orbit' then
      require('orbit.progress').show(event.data.params)
    end
  end,
})
vim.api.nvim_create_autocmd('DiagnosticChanged', {
  group = group,
  callback = function(event)
    require('orbit.doubled').again(event.buf)
  end,
})
vim.api.nvim_create_autocmd('FileType', {
  group = group,
  pattern = { 'cuda', 'python' },
  callback = function(event)
    require('orbit.server').say_if_missing(event.buf)
  end,
})

vim.api.nvim_create_autocmd('BufWritePost', {
  group = group,
  pattern = { '*.h', '*.hh', '*.hpp', '*.hxx', '*.inl', '*.inc' },
  callback = function(event)
    require('orbit.headers').saved(event.buf)
  end,
})

if vim.fn.has('nvim-0.12') == 0 then
  vim.api.nvim_create_autocmd('BufWritePost', {
    group = group,
    callback = function(event)
      require('orbit.names').written(event.buf)
    end,
  })
end

vim.lsp.enable('orbit')
