-- orbit-lsp in Neovim 0.11 or newer: copy to ~/.config/nvim/plugin/orbit.lua
vim.lsp.config('orbit', {
  cmd = { 'orbit-lsp' }, -- or the full path, such as '/path/to/orbit-lsp/.venv/bin/orbit-lsp'
  filetypes = { 'cuda', 'python', 'cpp' },
  root_dir = function(buf, start)
    local text = vim.bo[buf].filetype == 'cpp' and table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\n')
    if not text or text:find('__global__', 1, true) then -- of C++, headers with kernels
      start(vim.fs.root(buf, { 'compile_commands.json', 'pyproject.toml', '.git' }))
    end
  end,
  init_options = {
    -- `orbit-lsp trust DIR`, once: a project may name compilers and any compiler flag, and its .venv is used
    -- the settings of docs/guide/settings.md, without `orbit.`: gpu = 'H200', arguments = { '--size', '4096' }, …
  },
})
vim.lsp.enable('orbit')

vim.api.nvim_create_autocmd('LspAttach', {
  callback = function(event)
    if vim.lsp.get_client_by_id(event.data.client_id).name ~= 'orbit' then
      return
    end
    vim.lsp.inlay_hint.enable(true, { bufnr = event.buf })
    -- with the cursor on a kernel's line: click its lens
    vim.keymap.set('n', 'grl', vim.lsp.codelens.run, { buffer = event.buf, desc = 'Run a code lens' })
    if vim.lsp.codelens.enable then -- Neovim 0.12 keeps lenses fresh itself
      vim.lsp.codelens.enable(true, { bufnr = event.buf })
      return
    end
    local function refresh()
      vim.lsp.codelens.refresh({ bufnr = event.buf })
    end
    refresh()
    vim.api.nvim_create_autocmd({ 'BufEnter', 'CursorHold', 'InsertLeave' }, {
      buffer = event.buf,
      callback = refresh,
    })
    -- a run began, changed its state or ended
    vim.api.nvim_create_autocmd('LspProgress', { callback = vim.schedule_wrap(refresh) })
  end,
})
