-- Lenses and hints in a buffer that the server looks after.
local M = {}

---@class orbit.Options
---@field lenses? boolean draw lenses; default true
---@field hints? boolean draw inlay hints, where the numbers are; default true
---@field progress? boolean echo progress; default: unless something else listens to LspProgress

---@return orbit.Options
function M.options()
  return vim.tbl_extend('force', { lenses = true, hints = true }, vim.g.orbit or {})
end

local fetching = {} ---@type table<integer, true>

---Ask for a buffer's lenses, once for all that changes in this turn of the loop. Neovim 0.11 only:
---its own codelens.refresh() drops what is asked for while an answer is on its way.
---@param client vim.lsp.Client
---@param buf integer
local function fetch(client, buf)
  if fetching[buf] then
    return
  end
  fetching[buf] = true
  vim.schedule(function()
    fetching[buf] = nil
    if vim.api.nvim_buf_is_loaded(buf) and not client:is_stopped() then
      local params = { textDocument = vim.lsp.util.make_text_document_params(buf) }
      client:request('textDocument/codeLens', params, vim.lsp.codelens.on_codelens, buf)
    end
  end)
end

---@param client_id integer
function M.fetch_lenses(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  if client and M.options().lenses then
    for buf in pairs(client.attached_buffers) do
      fetch(client, buf)
    end
  end
end

---@param client vim.lsp.Client
---@param buf integer
function M.attach(client, buf)
  require('orbit.server').say_if_old(client)
  local options = M.options()
  if options.hints then
    vim.lsp.inlay_hint.enable(true, { bufnr = buf })
  end
  if not options.lenses then
    return
  end
  if vim.lsp.codelens.enable then
    vim.lsp.codelens.enable(true, { bufnr = buf })
    return
  end
  fetch(client, buf)
  vim.api.nvim_create_autocmd({ 'TextChanged', 'InsertLeave' }, {
    group = vim.api.nvim_create_augroup('orbit.lenses.' .. buf, {}),
    buffer = buf,
    callback = function()
      M.fetch_lenses(client.id)
    end,
  })
end

return M
