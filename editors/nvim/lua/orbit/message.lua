-- Messages of one line: a longer one, or two at once, would ask for a key press.
local M = {}

local LEVELS = { vim.log.levels.ERROR, vim.log.levels.WARN, vim.log.levels.INFO, vim.log.levels.INFO }
local COLOURS = { [vim.log.levels.ERROR] = 'ErrorMsg', [vim.log.levels.WARN] = 'WarningMsg' }

---Whether a function is Neovim's own, and not one of noice.nvim, nvim-notify or the user.
---@param one function
---@param file string a pattern of the files that have Neovim's
local function is_neovims(one, file)
  local source = debug.getinfo(one, 'S').source
  return source:find(file) ~= nil or source:find('^=?%?$') ~= nil -- 0.12 has it compiled, without its name
end

---In the message line, cut to one line. What was there before it goes first: together they would be too long.
---@param text string
---@param colour string?
---@param keep boolean whether |:messages| gets it
---@param how vim.api.keyset.echo_opts? its `title` stands before the text
---@return boolean whole
function M.echo(text, colour, keep, how)
  text = text:gsub('%s+', ' ')
  local taken = how and how.title and vim.fn.strdisplaywidth(how.title) + 2 or 0
  local most = vim.v.echospace - taken
  local whole = vim.fn.strdisplaywidth(text) <= most
  if not whole then
    local hint = keep and '… (:Orbit output)' or '…'
    local space = most - vim.fn.strdisplaywidth(hint)
    while vim.fn.strdisplaywidth(text) > space and text ~= '' do
      text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 1)
    end
    text = text .. hint
  end
  vim.cmd.redraw()
  vim.api.nvim_echo({ { text, colour } }, keep, how or {})
  return whole
end

---@param text string
---@param level integer?
function M.say(text, level)
  level = level or vim.log.levels.INFO
  if not is_neovims(vim.notify, 'vim/_[ec]') then
    vim.notify(text, level, { title = 'orbit' })
  elseif not M.echo(text, COLOURS[level], true) then
    require('orbit.output').append(text .. '\n')
  end
end

---The handler of window/showMessage.
---@param fault lsp.ResponseError?
---@param params lsp.ShowMessageParams
---@param context lsp.HandlerContext
function M.show(fault, params, context)
  local elsewhere = vim.lsp.handlers['window/showMessage']
  if elsewhere and not is_neovims(elsewhere, 'vim/lsp/handlers') then -- noice.nvim's
    return elsewhere(fault, params, context)
  end
  M.say(params.message, LEVELS[params.type])
  return params
end

return M
