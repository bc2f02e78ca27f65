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

---For a status line: the GPU that runs go to, and how many are under way. Empty where no server looks after the buffer.
---@param buf integer?
---@return string
function M.statusline(buf)
  return require('orbit.status').text(buf or vim.api.nvim_get_current_buf())
end

local fetching = {} ---@type table<integer, true>

---Ask for a buffer's lenses, once for all that changes in `wait` milliseconds. Neovim 0.11 only: its own
---codelens.refresh() drops what is asked for while an answer is on its way.
---@param client vim.lsp.Client
---@param buf integer
---@param wait integer
local function fetch(client, buf, wait)
  if fetching[buf] then
    return
  end
  fetching[buf] = true
  vim.defer_fn(function()
    fetching[buf] = nil
    if vim.api.nvim_buf_is_loaded(buf) and not client:is_stopped() then
      local params = { textDocument = vim.lsp.util.make_text_document_params(buf) }
      client:request('textDocument/codeLens', params, vim.lsp.codelens.on_codelens, buf)
    end
  end, wait)
end

---@param client_id integer
function M.fetch_lenses(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  if client and M.options().lenses then
    for buf in pairs(client.attached_buffers) do
      fetch(client, buf, 0)
    end
  end
end

local drawn = {} ---@type table<integer, string> the server's last answer, by buffer

---Other servers' hints of a text that has become shorter: Neovim draws them with our answer for the new text, where they
---are an error that asks for a key. They go until their server has answered.
---@param context lsp.HandlerContext
local function drop_old_hints(context)
  local gone = {} ---@type table<integer, true>
  for _, one in ipairs(vim.lsp.inlay_hint.get({ bufnr = context.bufnr })) do
    local at = one.inlay_hint.position
    local line = vim.api.nvim_buf_get_lines(context.bufnr, at.line, at.line + 1, false)[1]
    if one.client_id ~= context.client_id and (not line or at.character > #line) then
      gone[one.client_id] = true
    end
  end
  for id in pairs(gone) do
    vim.lsp.inlay_hint.on_inlayhint(nil, {}, vim.tbl_extend('force', context, { client_id = id }))
  end
end

local guarded = false

---Other servers' answers draw our old hints in the same way: those go until our answer is here.
local function guard_others()
  if guarded then
    return
  end
  guarded = true
  local draw = vim.lsp.handlers['textDocument/inlayHint']
  vim.lsp.handlers['textDocument/inlayHint'] = function(fault, hints, context)
    drop_old_hints(context)
    return draw(fault, hints, context)
  end
end

---The handler of textDocument/inlayHint. Neovim (0.11 and 0.12) forgets what it has drawn when it asks: a redraw
---before the answer draws the old hints again, and the new ones stay undrawn until the text changes. So it is made
---to forget once the answer is here; that asks again, and ends with an answer that says nothing new.
---@param fault lsp.ResponseError?
---@param hints lsp.InlayHint[]?
---@param context lsp.HandlerContext
function M.draw_hints(fault, hints, context)
  local said = not fault and vim.inspect(hints) or nil -- the next line rewrites their positions
  drop_old_hints(context)
  vim.lsp.inlay_hint.on_inlayhint(fault, hints, context)
  if said and drawn[context.bufnr] ~= said then
    drawn[context.bufnr] = said
    vim.lsp.inlay_hint.on_refresh(nil, nil, context)
  end
end

---Neovim asks for the new hints of buffers that have a window, and for those of others not even when they get one.
---@param client vim.lsp.Client
---@param buf integer
local function show_new_hints(client, buf)
  vim.api.nvim_create_autocmd('BufWinEnter', {
    buffer = buf,
    callback = function()
      if client:is_stopped() then
        return true -- no longer told
      end
      vim.lsp.inlay_hint.on_refresh(nil, nil, { client_id = client.id, method = 'workspace/inlayHint/refresh' })
    end,
  })
end

---@param client vim.lsp.Client
---@param buf integer
function M.attach(client, buf)
  require('orbit.server').say_if_old(client)
  local options = M.options()
  if options.hints then
    vim.lsp.inlay_hint.enable(true, { bufnr = buf })
    guard_others()
    show_new_hints(client, buf)
  end
  if not options.lenses then
    return
  end
  if vim.lsp.codelens.enable then
    vim.lsp.codelens.enable(true, { bufnr = buf })
    return
  end
  require('orbit.lenses').take_over()
  fetch(client, buf, 0)
  local function edited()
    if client:is_stopped() then
      return true -- no longer told; a fetch of its own would stand in the way of the next client's
    end
    fetch(client, buf, 200)
  end
  vim.api.nvim_buf_attach(buf, false, { on_lines = edited, on_reload = edited })
end

return M
