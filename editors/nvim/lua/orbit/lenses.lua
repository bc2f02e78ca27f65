-- Lenses above their lines in Neovim 0.11, as 0.12 draws them: its own stand behind the line, where a signature hides them.
local M = {}

local space = vim.api.nvim_create_namespace('orbit.lenses')

---@param buf integer
---@param row integer
---@param titles string[]
local function draw_row(buf, row, titles)
  local line = vim.api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ''
  local text = { { line:match('^%s*'), 'LspCodeLens' } }
  for index, title in ipairs(titles) do
    if index > 1 then
      text[#text + 1] = { ' | ', 'LspCodeLensSeparator' }
    end
    text[#text + 1] = { title, 'LspCodeLens' }
  end
  vim.api.nvim_buf_set_extmark(buf, space, row, 0, {
    virt_lines = { text },
    virt_lines_above = true,
    hl_mode = 'combine',
  })
end

---Neovim does not show by itself what is above the first line (issue 16166).
---@param buf integer
local function uncover(buf)
  local first = vim.api.nvim_buf_get_extmarks(buf, space, { 0, 0 }, { 0, -1 }, { limit = 1 })
  for _, window in ipairs(#first > 0 and vim.fn.win_findbuf(buf) or {}) do
    if vim.fn.line('w0', window) == 1 then
      vim.api.nvim_win_call(window, function()
        vim.fn.winrestview({ topfill = 1 })
      end)
    end
  end
end

---@param buf integer
---@param lenses lsp.CodeLens[]
local function draw(buf, lenses)
  local rows = {} ---@type table<integer, string[]>
  for _, lens in ipairs(lenses) do
    local row = lens.range.start.line
    if lens.command and row < vim.api.nvim_buf_line_count(buf) then
      rows[row] = rows[row] or {}
      table.insert(rows[row], lens.command.title)
    end
  end
  vim.api.nvim_buf_clear_namespace(buf, space, 0, -1)
  for row, titles in pairs(rows) do
    draw_row(buf, row, titles)
  end
  uncover(buf)
end

---Take the place of what draws lenses in Neovim 0.11, for those of our server.
function M.take_over()
  if M.display then
    return
  end
  M.display = vim.lsp.codelens.display
  vim.api.nvim_create_autocmd('BufWinEnter', {
    group = vim.api.nvim_create_augroup('orbit.lenses', {}),
    callback = function(event)
      vim.schedule(function()
        if vim.api.nvim_buf_is_valid(event.buf) then
          uncover(event.buf)
        end
      end)
    end,
  })
  vim.lsp.codelens.display = function(lenses, buf, client_id)
    local client = vim.lsp.get_client_by_id(client_id)
    if not client or client.name ~= 'orbit' then
      M.display(lenses, buf, client_id)
    elseif vim.api.nvim_buf_is_loaded(buf) then
      draw(buf, lenses or {})
    end
  end
end

return M
