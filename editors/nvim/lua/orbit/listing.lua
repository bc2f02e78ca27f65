-- What the compiler made of a kernel, beside its source: the instructions of the line at the cursor are marked.
local M = {}

local space = vim.api.nvim_create_namespace('orbit.listing')

---Rows, from 0, of the instructions that a line became; none where the line was edited since.
---@param listing string[]
---@param path string of the source
---@param line integer from 1
---@param text string of that line
---@return integer[]
function M.rows(listing, path, line, text)
  local rows, ours = {}, false
  for row, each in ipairs(listing) do
    local file, number, rest = each:match('^// (.-):(%d+)(.*)$')
    if file then
      local quoted = rest:match('    (.*)')
      ours = tonumber(number) == line
        and vim.endswith('/' .. path, '/' .. file)
        and (not quoted or vim.startswith(quoted .. '    ', vim.trim(text) .. '    '))
    elseif ours and each:match('^[+ ] +/%*') then -- what has gone has a `-`
      rows[#rows + 1] = row - 1
    end
  end
  return rows
end

---@return integer[] windows of this tab page that show one
local function windows()
  return vim.tbl_filter(function(window)
    return vim.b[vim.api.nvim_win_get_buf(window)].orbit_listing == true
  end, vim.api.nvim_tabpage_list_wins(0))
end

---Mark what the line at the cursor became, and bring it into view.
---@param source integer window
---@param window integer
local function mark(source, window)
  local from, buf = vim.api.nvim_win_get_buf(source), vim.api.nvim_win_get_buf(window)
  local line = vim.api.nvim_win_get_cursor(source)[1]
  local text = vim.api.nvim_buf_get_lines(from, line - 1, line, false)[1]
  local listing = vim.api.nvim_buf_get_lines(buf, 0, -1, false)
  local rows = M.rows(listing, vim.api.nvim_buf_get_name(from), line, text)
  vim.api.nvim_buf_clear_namespace(buf, space, 0, -1)
  for _, row in ipairs(rows) do
    vim.api.nvim_buf_set_extmark(buf, space, row, 0, { line_hl_group = 'OrbitInstructions' })
  end
  local first, last = vim.fn.line('w0', window), vim.fn.line('w$', window)
  local seen = vim.iter(rows):any(function(row)
    return first <= row + 1 and row + 1 <= last
  end)
  if rows[1] and not seen then
    vim.api.nvim_win_set_cursor(window, { rows[1] + 1, 0 })
  end
end

local function follow()
  local source = vim.api.nvim_get_current_win()
  if not vim.b.orbit_listing then
    for _, window in ipairs(windows()) do
      mark(source, window)
    end
  end
end

---The handler of window/showDocument where the cursor is to stay in the source.
---@param params lsp.ShowDocumentParams
function M.show(params)
  local buf = vim.uri_to_bufnr(params.uri)
  vim.fn.bufload(buf)
  vim.b[buf].orbit_listing, vim.bo[buf].autoread, vim.bo[buf].buflisted = true, true, true
  local window = vim.fn.bufwinid(buf)
  if window == -1 then
    window = windows()[1]
    if window then
      vim.api.nvim_win_set_buf(window, buf)
    else
      window = vim.api.nvim_open_win(buf, false, { split = 'right', win = -1 })
    end
    vim.wo[window].number, vim.wo[window].relativenumber, vim.wo[window].wrap = false, false, false
  end
  if params.selection then
    vim.api.nvim_win_set_cursor(window, { params.selection.start.line + 1, 0 })
  end
  vim.api.nvim_set_hl(0, 'OrbitInstructions', { default = true, link = 'Visual' })
  vim.api.nvim_create_autocmd({ 'CursorMoved', 'CursorMovedI', 'BufEnter' }, {
    group = vim.api.nvim_create_augroup('orbit.listing', {}),
    callback = follow,
  })
  follow()
  return { success = true }
end

---What was written anew, as a CUDA file's is at each save.
function M.reread()
  for _, window in ipairs(windows()) do
    vim.cmd.checktime(vim.api.nvim_win_get_buf(window))
  end
  follow()
end

return M
