-- Progress of builds and runs in the message line, where nothing else shows it.
local M = {}

local titles = {} ---@type table<string|integer, string>

---Whether fidget.nvim, noice.nvim, a status line or an autocommand of the user shows it already.
local function shown_elsewhere()
  if package.loaded['noice'] then -- some versions of it listen without an autocommand
    return true
  end
  return vim.iter(vim.api.nvim_get_autocmds({ event = 'LspProgress' })):any(function(one)
    local group = one.group_name or ''
    return group ~= 'orbit' and not vim.startswith(group, 'nvim.')
  end)
end

---@param params lsp.ProgressParams
function M.show(params)
  local value = params.value
  local ended = value.kind == 'end'
  local title = value.title or titles[params.token] or ''
  titles[params.token] = not ended and title or nil
  local wanted = require('orbit').options().progress
  if wanted == nil then
    wanted = not shown_elsewhere()
  end
  if not wanted then
    return
  end
  if ended and not value.message then -- how it ended is a message of its own
    vim.api.nvim_echo({ { '' } }, false, {})
    return
  end
  local text = value.message or '…'
  local whole ---@type boolean
  if vim.fn.has('nvim-0.12') == 1 then
    whole = require('orbit.message').echo(text, nil, ended, {
      id = 'orbit.' .. params.token,
      kind = 'progress',
      source = 'orbit',
      title = title,
      status = ended and 'success' or 'running',
    })
  else
    whole = require('orbit.message').echo(('%s: %s'):format(title, text), nil, ended)
  end
  if ended and not whole and vim.startswith(tostring(params.token), 'orbit/compile ') then
    require('orbit.output').append(('%s: %s\n'):format(title, text)) -- the server writes how runs ended, not compiles
  end
end

return M
