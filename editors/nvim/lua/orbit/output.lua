-- What runs have printed and how they ended: the server sends it, a buffer of its own keeps it.
local M = {}

local NAME = 'orbit://output'
local MOST = 20000 -- lines

local function find()
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_valid(buf) and vim.b[buf].orbit_output then
      return buf
    end
  end
end

---@return integer
function M.buffer()
  local buf = find()
  if buf then
    return buf
  end
  buf = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(buf, NAME)
  vim.b[buf].orbit_output = true
  vim.bo[buf].bufhidden, vim.bo[buf].modifiable, vim.bo[buf].undolevels = 'hide', false, -1
  vim.bo[buf].filetype = 'orbit-output'
  return buf
end

---@param text string
function M.append(text)
  local buf = M.buffer()
  local last = vim.api.nvim_buf_line_count(buf)
  local following = vim.tbl_filter(function(window)
    return vim.api.nvim_win_get_cursor(window)[1] == last
  end, vim.fn.win_findbuf(buf))
  vim.bo[buf].modifiable = true
  local column = #vim.api.nvim_buf_get_lines(buf, last - 1, last, false)[1]
  vim.api.nvim_buf_set_text(buf, last - 1, column, last - 1, column, vim.split(text, '\n', { plain = true }))
  local extra = vim.api.nvim_buf_line_count(buf) - MOST
  if extra > 0 then
    vim.api.nvim_buf_set_lines(buf, 0, extra, false, {})
  end
  vim.bo[buf].modifiable, vim.bo[buf].modified = false, false
  for _, window in ipairs(following) do
    vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(buf), 0 })
  end
end

---Show it below the text; the cursor stays where it is.
function M.open()
  local buf = M.buffer()
  if #vim.fn.win_findbuf(buf) > 0 then
    return
  end
  local window = vim.api.nvim_open_win(buf, false, { split = 'below', height = 12 })
  vim.wo[window].number, vim.wo[window].relativenumber, vim.wo[window].winfixheight = false, false, true
  vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(buf), 0 })
end

return M
